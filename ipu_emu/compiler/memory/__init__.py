"""What lives in Streaming Memory, and the memory plan of a program."""
