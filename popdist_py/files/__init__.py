"""Files: whole writes, bounded reads, and which files may be loaded as code."""
