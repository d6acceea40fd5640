"""Trace: records the calls of a program while its graph is built, and the part of a step of each op."""
