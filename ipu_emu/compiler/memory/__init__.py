"""memory: which tensors are in Streaming Memory, the memory plan of a program, and remedies if it does not fit."""
