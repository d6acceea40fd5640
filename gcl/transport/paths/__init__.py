"""The data paths that a communicator runs on (memory, messages, both), and the choice between them."""
