"""Host: the supervisor, which runs one instance on its host, forwards its output and cleans up after it."""
