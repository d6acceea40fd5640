"""Supervisor script: the file that mpirun starts; it forks, so that killing any one process leaves none behind.

    mpirun's process manager
    +-- holder           the process that the process manager knows and may kill; ends when the supervisor ends
        +-- supervisor   in a session of its own, so that it outlives the holder long enough to clean up
        |   +-- program  killed by the kernel when the supervisor dies
        +-- canary      in the group of the holder: tells whether the process manager has killed that

Python runs it without site (-S), so it sets the path of the packages itself.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

#: The same as in wire/variables.py, which cannot be imported before its value is known.
PATH_VARIABLE = "POPRUN_PY_PATH"


def main() -> int:
    """Fork the supervisor, and wait for it as the process that the process manager knows; return the exit code."""
    sys.path += os.environ.pop(PATH_VARIABLE, "").split(os.pathsep)
    from poprun_py.errors import PROCESS_LIMIT_ADVICE
    from poprun_py.host.canary import Canary
    from poprun_py.linux import processes

    if fault := processes.proc_fault():
        _fail(fault)
    processes.close_listening_sockets()  # MPICH's process manager passes its own on
    processes.adopt_orphans()
    manager, holder = os.getppid(), os.getpid()
    near, far = socket.socketpair()
    try:
        supervisor = os.fork()
    except OSError as error:
        _fail(f"{error.strerror}; {PROCESS_LIMIT_ADVICE}")
    if supervisor:
        near.close()
        return _hold(supervisor, manager, far)
    far.close()
    os.setsid()
    from poprun_py.host.supervisor import supervise

    return supervise(holder=holder, manager=manager, canary=Canary(near))


def _fail(reason: str) -> None:
    """Say why no process can be started, to the launcher or else on stderr, and end so that the MPI ends the job."""
    from poprun_py.host.failed_start import report_failed_start

    if not report_failed_start(reason):
        os.write(2, f"poprun-py: no process can be started: {reason}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)  # on an exit code, MPICH's process manager would wait forever


def _hold(supervisor: int, manager: int, canary: socket.socket) -> int:
    """Forward signals, wait, and clean up after a supervisor that was killed; ``canary`` is to be given to it."""
    from poprun_py.host.canary import start_canary
    from poprun_py.linux import processes

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: processes.kill(supervisor, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))  # the supervisor continues alone
    start_canary(canary)  # this process now survives the same signals as the canary
    canary.close()
    processes.die_with_parent(signal.SIGTERM, manager)
    _, status = os.waitpid(supervisor, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        processes.end_descendants(timeout=1.0)
        os.kill(os.getpid(), signal.SIGKILL)  # not every process manager ends the job on an exit code
    return code


if __name__ == "__main__":
    os._exit(main())
