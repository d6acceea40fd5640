"""Linux: services of the operating system: processes, pipes, signals, timers, files of a job and their removal."""
