"""Calls: ops and instructions as prepared calls on memory that is laid out once."""
