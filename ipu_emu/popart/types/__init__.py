"""types: PopART's enumerations, TensorInfo and DebugContext."""
