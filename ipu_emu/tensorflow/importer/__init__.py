"""Importer: a traced TensorFlow graph as ops of the emulator."""
