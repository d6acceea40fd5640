"""Warm run: the client of ``warm_python.py``; to others it appears to be the forked process.

    python -I -S warm_run.py SOCKET WHAT ...

``warm_python.py`` describes WHAT, and answers at the socket. This process forwards signals, and ends with the exit
code or signal of the forked process. It imports the C parts of the usual modules, because importing whole modules
would take longer than everything else that it does.
"""

import _signal
import _socket
import marshal
import os
import sys

#: Signals that are not forwarded: they cannot be handled, or they stop a process.
_OWN = {getattr(_signal, f"SIG{name}") for name in ("KILL", "STOP", "CHLD", "CONT", "TSTP", "TTIN", "TTOU")}


def run(path: str, argv: list[str]) -> None:
    """Request a process, and wait for its end."""
    open_ones = [int(name) for name in os.listdir("/proc/self/fd")]
    descriptors = [number for number in sorted(open_ones) if _is_open(number)]
    ignored = [number for number in range(1, _signal.NSIG) if _signal.getsignal(number) == _signal.SIG_IGN]
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(path)
    own = (dict(os.environ), os.getcwd(), ignored, os.sched_getaffinity(0))
    request = marshal.dumps((argv, own, descriptors))
    descriptor_bytes = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor_bytes)
    server.sendmsg([len(request).to_bytes(4, sys.byteorder)], [rights])
    server.sendall(request)
    pid = _number(server)
    if os.environ.get("WARM_PIDS"):
        with open(f"pid.{pid}", "w") as file:  # for tests that look for the processes of a job in its folder
            file.write(str(pid))
    for number in _signal.valid_signals() - _OWN - set(ignored):
        _signal.signal(number, lambda number, _: os.kill(pid, number))
    status = _number(server)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in _OWN:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:  # the descriptor that listed the folder
        return False
    return True


def _number(stream: _socket.socket) -> int:
    """The next number that warm_python.py sends."""
    data = b""
    while len(data) < 4:
        part = stream.recv(4 - len(data))
        if not part:
            raise EOFError("warm_python.py is gone")
        data += part
    return int.from_bytes(data, sys.byteorder, signed=True)


run(sys.argv[1], sys.argv[2:])
