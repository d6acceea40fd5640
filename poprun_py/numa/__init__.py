"""NUMA: the CPUs and memory nodes of a host, which of them an instance gets, and binding a process to those."""
