"""Probe: measurements of a program's host I/O, and what limits it."""
