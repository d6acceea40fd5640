"""Tracing: what a program calls while its graph is built, and which part of a step each op belongs to."""
