"""Failure report: the launcher's own messages during a job, and the last of them: why the job failed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable

from poprun_py.errors import PROCESS_LIMIT_ADVICE
from poprun_py.job.failure import InstanceEnd
from poprun_py.job.job_state import JobState
from poprun_py.job.output_delivery import OutputDelivery
from poprun_py.output.log import printable
from poprun_py.output.screen import Screen
from poprun_py.output.stderr_end import last_line
from poprun_py.output.tagged_output import LAST_LINES
from poprun_py.output.uncaught_exception import find_uncaught

_BOLD_RED, _PLAIN = b"\x1b[1;31m", b"\x1b[0m"

#: Open MPI's messages when it cannot start, which come from its daemon instead of the instance.
_MPI_ERROR = rb"An error occurred in MPI_Init"
_MPI_LACKS_MEMORY = rb"not enough space for\s+/dev/shm"


class Console:
    """Writes the launcher's own messages to stderr."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def say(self, text: str, emphasised: str = "") -> None:
        bold = _bytes(emphasised)
        if bold and self._screen.has_color:
            bold = _BOLD_RED + bold + _PLAIN
        self._screen.stderr(b"poprun-py: " + _bytes(text) + bold + b"\n")

    def quote(self, heading: str, lines: Iterable[bytes]) -> None:
        """Write the last of ``lines``, indented, below a heading; nothing if all are empty."""
        shown = [line for line in lines if line.strip()][-LAST_LINES:]
        if shown:
            self.say(f"{heading}:")
            self._screen.stderr(b"".join(b"    " + _bytes(os.fsdecode(line)) + b"\n" for line in shown))


def _bytes(text: str) -> bytes:
    return printable(text.expandtabs()).encode(errors="surrogateescape")


def explain(
    job: JobState,
    delivery: OutputDelivery,
    console: Console,
    *,
    starter: str,
    starter_output: Iterable[bytes],
    shortage: Callable[[], str] = str,
) -> None:
    """Write why ``job`` failed, if it did and the user did not end it; ``starter`` is the name of mpirun or srun.

    ``shortage`` says which limit may have kept instances from starting, if any.
    """
    failure = job.failure
    if job.user_signal:
        return
    said = b"".join(starter_output)
    if job.why or (failure and failure.lost):
        console.say(job.why or str(failure))
        console.quote(f"{starter} wrote last", said.split(b"\n"))
        if job.missing and PROCESS_LIMIT_ADVICE.encode() not in said and (reason := shortage()):
            console.say(reason)
    elif failure:
        said = said if _MPI_ERROR in said else b""
        _explain_failure(failure, delivery, console, said)
        console.quote(f"{starter} wrote last", said.split(b"\n"))


def _explain_failure(failure: InstanceEnd, delivery: OutputDelivery, console: Console, said_by_mpi: bytes) -> None:
    """Explain ``failure``; ``said_by_mpi``: the output of the starter if MPI could not start."""
    rank = failure.instance.index
    words = _words(failure, delivery.stderr_end(rank), said_by_mpi)
    console.say(str(failure) + (": " if words else ""), words)
    path = delivery.log_of_errors(rank)
    where = f" (all of it: {path})" if path else ""
    console.quote(f"instance {rank} wrote last to stderr{where}", delivery.last_lines(rank))


def _words(failure: InstanceEnd, stderr: bytes, said_by_mpi: bytes) -> str:
    """The last words of an instance that ended itself: its exception, else the last line of its stderr."""
    if failure.status == -signal.SIGBUS or re.search(_MPI_LACKS_MEMORY, said_by_mpi):
        return _about_shared_memory(failure.instance.host)
    if failure.status <= 0:
        return ""
    raised = find_uncaught(stderr) if failure.exit_code == 1 else None
    return str(raised) if raised else "" if failure.reason else last_line(stderr)


def _about_shared_memory(host: str) -> str:
    """The usual cause of SIGBUS: too little shared memory."""
    if host not in ("localhost", os.uname().nodename):
        return f"/dev/shm of {host} may be too small (`df -h /dev/shm` there says how much is free)"
    try:
        file_system = os.statvfs("/dev/shm")
    except OSError:
        return ""
    free, size = (blocks * file_system.f_frsize >> 20 for blocks in (file_system.f_bavail, file_system.f_blocks))
    return (
        f"/dev/shm may be too small: {size} MiB, of which {free} are free after the job (in a container: --shm-size)"
    )
