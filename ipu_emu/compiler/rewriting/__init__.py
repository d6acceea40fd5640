"""rewriting: how a model is read, passes that prepare it for the others, and the writer by which all append ops."""
