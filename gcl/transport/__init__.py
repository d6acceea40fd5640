"""How bytes travel between ranks: within a process, between the processes of a host, and between hosts."""
