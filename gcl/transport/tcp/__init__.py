"""Messages over TCP connections between hosts."""
