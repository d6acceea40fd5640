"""Output: what the launcher writes: the instances' tagged output, log files, messages and the progress table."""
