"""Dependent program: a program that the kernel ends with SIGTERM when the process that started it ends."""

import ctypes
import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1


def dependent(command: Sequence[str]) -> list[str]:
    """The command line with which this process starts ``command`` so that it ends with the thread that starts it.

    Raises FileNotFoundError if there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that the program that runs is ended and files are removed, as with Ctrl-C."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _become(parent: int, command: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        sys.exit(128 + signal.SIGTERM)
    # Python ignores these two, programs expect the default action
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
