"""Ranks of several hosts: collectives in two levels, and the transports between hosts."""
