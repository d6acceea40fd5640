"""Linux: operating system services: processes, pipes, signals, timers, removal of leftovers."""
