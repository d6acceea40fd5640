"""Dependent program: a program that the kernel ends with SIGTERM when the process that started it ends."""

import ctypes
import errno
import os
import shutil
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def dependent(command: Sequence[str]) -> list[str]:
    """The command line with which this process starts ``command`` so that it ends with the thread that starts it.

    Raises FileNotFoundError if there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


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
