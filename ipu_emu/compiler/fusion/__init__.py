"""Several ops or collectives become one."""
