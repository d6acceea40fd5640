"""SessionOptions, DataFlow, Patterns, and the settings of inputs, variables and tensor locations."""
