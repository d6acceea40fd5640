"""rewriting: passes that prepare a model for the others, and the writer with which passes append ops."""
