"""Options: the table of options, how they are read from the command line or a file, and validated."""
