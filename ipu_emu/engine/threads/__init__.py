"""Threads: worker threads, a background thread, and threads ordered by dependencies."""
