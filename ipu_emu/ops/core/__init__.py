"""The definition of an op: its entry in the table, shape rules, costs, gradients, helpers of kernels."""
