"""The intermediate representation as PopART prints it: its names and forms of ops for the graph of a step."""
