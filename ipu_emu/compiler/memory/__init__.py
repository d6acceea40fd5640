"""memory: which tensors are in Streaming Memory, and the memory plan of a program."""
