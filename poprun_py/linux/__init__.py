"""Linux services: processes, pipes, signals, timers, atomic file writes, leftover files, resource usage."""
