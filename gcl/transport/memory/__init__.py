"""Collectives over memory that ranks share: zero-copy, chunked and process_vm transfers, deadlock detection."""
