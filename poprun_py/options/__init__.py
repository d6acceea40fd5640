"""The command line: the table of options, how it is read, completed, checked as a whole, and kept in a file."""
