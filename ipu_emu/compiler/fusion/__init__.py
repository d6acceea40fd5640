"""fusion: several ops or collectives become one."""
