"""Aliases: a folder for ``sys.path``, in which child processes of a program find popart and popdist (see compat)."""
