"""Linux: operating system services: processes, pipes, signals, timers, the files of a job and their removal."""
