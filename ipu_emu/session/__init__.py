"""session: from a graph and its options to a step that fits its IPUs and runs; only it makes engines."""
