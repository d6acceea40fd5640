"""V-IPU: the emulated partition of a job, and the file in which the partitions of a user are kept."""
