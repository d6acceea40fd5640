"""lowering: from the graph of a step to its program of instructions."""
