"""rewriting: reading a model, passes that prepare it for the others, and the writer with which passes append ops."""
