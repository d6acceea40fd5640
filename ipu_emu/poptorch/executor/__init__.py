"""executor: runs a wrapped module: its arguments, compiled program, weights and outputs."""
