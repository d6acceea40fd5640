"""Reductions in a fixed balanced tree, the collectives within a replica, and the buffer pool."""
