"""Limits: those of the operating system that a job needs, raised as far as the user may, or refused with the cure."""

from __future__ import annotations

import resource

from poprun_py.errors import PoprunError

__all__ = ["allow_open_files"]

#: Open files that the launcher and the MPI's process manager need, and those that each instance adds.
_ALWAYS, _PER_INSTANCE = 48, 6


def allow_open_files(num_instances: int) -> None:
    """Raise the limit of open files to what a job of so many instances needs; raise PoprunError if it is lower."""
    needed = _ALWAYS + _PER_INSTANCE * num_instances
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise PoprunError(
            f"a job of {num_instances} instance{'s' * (num_instances > 1)} needs {needed} open files, and {hard} are "
            f"allowed here; raise the limit (ulimit -n {needed})"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
