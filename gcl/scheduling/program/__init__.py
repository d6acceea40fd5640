"""Step programs as plain data: their instructions, rewrites, interpreter, and text diagrams."""
