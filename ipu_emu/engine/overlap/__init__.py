"""Overlap: host I/O and Streaming Memory transfers that run during compute."""
