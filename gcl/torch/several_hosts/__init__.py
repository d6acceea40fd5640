"""Ranks of several hosts: collectives in two levels, and what carries bytes between hosts."""
