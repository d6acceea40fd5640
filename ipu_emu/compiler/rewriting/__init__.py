"""Passes that bring a model into the form that the others expect, and the writer that all use to append ops."""
