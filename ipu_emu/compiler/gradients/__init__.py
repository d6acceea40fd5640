"""gradients: automatic differentiation, and which activations are kept or recomputed for it."""
