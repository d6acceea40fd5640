"""Functions of kernels, as sequences of instructions whose results have the same bits on every processor."""
