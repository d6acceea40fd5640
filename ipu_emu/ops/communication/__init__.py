"""Communication: copies and collectives between replicas, and between an IPU and Streaming Memory."""
