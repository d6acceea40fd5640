"""Back ends: the pure functions that turn a plan into the one command that starts all supervisors."""
