"""Subgraphs and control flow: call, if, loop, scan; ops that abort or print; unsupported ops."""
