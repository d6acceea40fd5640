"""The supervisor: runs one instance on its host, forwards its output and signals, and leaves nothing behind."""
