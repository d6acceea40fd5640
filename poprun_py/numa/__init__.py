"""NUMA: the CPUs and memory nodes of a host, the share of each instance, and binding a process to them."""
