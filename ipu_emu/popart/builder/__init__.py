"""builder: Builder, the op sets, and GraphTransformer."""
