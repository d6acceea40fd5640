"""Output: the launcher's output: the instances' tagged output, log files, messages and the progress table."""
