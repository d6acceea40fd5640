"""Collectives over memory that ranks share: zero-copy, chunked and relayed transfers, deadlock detection."""
