"""memory: which tensors are in Streaming Memory, the memory plan of a program, and what helps if it does not fit."""
