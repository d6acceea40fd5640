"""Ranks that share memory: their collectives on numpy arrays, and their messages."""
