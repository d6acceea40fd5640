"""Importer: the sections of a traced TensorFlow graph as graphs of the emulator."""
