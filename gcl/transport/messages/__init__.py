"""Collectives over point-to-point messages, between ranks or between hosts."""
