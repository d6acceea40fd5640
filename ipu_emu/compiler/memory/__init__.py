"""memory: which tensors lie in Streaming Memory, and the memory plan of a program."""
