"""types: PopART's enumerations, TensorInfo, DebugContext, and the base of option objects."""
