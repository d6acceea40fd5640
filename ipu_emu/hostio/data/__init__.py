"""Samples: their sources, their order, their preparation, and generated data that replaces them."""
