"""Executables on disk, so that a model is compiled once."""
