"""Element-wise ops: arithmetic, mathematical functions, activations, comparisons, and their fused form."""
