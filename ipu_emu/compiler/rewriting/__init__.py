"""rewriting: passes that prepare a model for the others, and the writer that all use to append ops."""
