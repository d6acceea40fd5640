"""Overlap: host I/O and Streaming Memory transfers beside compute."""
