"""The authenticated connections between the launcher and its supervisors, and the messages sent over them."""
