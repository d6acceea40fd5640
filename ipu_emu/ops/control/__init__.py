"""Subgraphs and control flow: call, if, loop, scan; ops that end, print or refuse."""
