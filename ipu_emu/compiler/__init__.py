"""compiler: from a graph and its options to the executable of a step."""
