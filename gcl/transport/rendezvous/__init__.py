"""How ranks that share memory find each other, announce calls, and wait."""
