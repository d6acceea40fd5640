"""Aliases: a folder for ``sys.path``, where processes that a program starts find popart and popdist (see compat)."""
