"""Samples: where they come from, their order, their preparation, and generated data that replace them."""
