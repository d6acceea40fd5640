"""Wire: the authenticated channels between the launcher and its supervisors, and the messages sent over them."""
