"""executor: a wrapped module: its arguments, its compiled program, its weights and its outputs."""
