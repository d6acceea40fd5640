"""What the user sees and keeps: tagged output, log lines, log files, the screen, the progress table."""
