"""The ways bytes go between ranks: threads of one process, processes of one host, hosts."""
