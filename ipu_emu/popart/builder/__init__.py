"""Builder, the op sets, node annotations, and GraphTransformer."""
