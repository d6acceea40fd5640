"""Files: atomic writes, bounded reads, and which files may be loaded as code."""
