"""Replicas: the memory of the local replicas, and collectives between all replicas."""
