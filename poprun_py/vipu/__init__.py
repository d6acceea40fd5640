"""The emulated V-IPU: the partition that a job asks for, and the file in which a user's partitions are kept."""
