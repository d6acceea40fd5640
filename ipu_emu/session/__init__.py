"""session: from a graph and its options to a checked, loaded step that runs; only it makes engines."""
