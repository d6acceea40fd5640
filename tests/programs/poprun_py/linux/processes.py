"""Start, find and end processes, as its first argument names: ``processes.py NAME [ARGUMENT ...]``."""

import os
import signal
import sys
import time
from typing import Any

from poprun_py.linux import processes
from poprun_py.linux.event_sources import SignalPipe

SLEEP = "import time; time.sleep(60)"
#: Starts three processes in separate sessions, whose parents end immediately.
THREE_ORPHANS = os.path.join(os.path.dirname(__file__), "three_orphans.py")


def start(*words: str, **changes: Any) -> int:
    """Start Python with these words."""
    null = os.open(os.devnull, os.O_RDWR)
    settings = {
        "executable": sys.executable,
        "environment": dict(os.environ),
        "cwd": "/",
        "streams": (null, 1, 2),
        "session": False,
        "death_signal": signal.SIGKILL,
    }
    return processes.spawn([sys.executable, *words], **settings | changes)


def surroundings() -> None:
    reader, writer = os.pipe()
    code = "import os; print(os.getcwd(), os.getpgid(0) == os.getpid(), os.environ['A'])"
    pid = start("-c", code, cwd="/usr", streams=(0, writer, 2), environment={"A": "b"})
    os.close(writer)
    with open(reader) as pipe:
        print(pipe.read().strip())
    print(processes.reap() if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) else None, pid)


def descriptors() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    code = f"import os; os.write({writer}, b'yes'); os.fstat({reader})"
    start("-c", code, streams=(0, 1, os.open(os.devnull, os.O_WRONLY)))
    os.wait()
    print(os.read(reader, 10))


def ignored_signals() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    grep = ["grep", "SigIgn", "/proc/self/status"]
    settings: dict[str, Any] = {"environment": {}, "cwd": "/", "streams": (null, 1, 2)}
    processes.spawn(grep, executable="/bin/grep", session=True, death_signal=signal.SIGKILL, **settings)
    os.wait()


def cannot_start(setting: str, value: str) -> None:
    try:
        start("-c", "pass", **{setting: value})
    except OSError as error:
        print(type(error).__name__, processes.reap())


def hangs(moment: str) -> None:
    """Simulate a child that hangs in a dead network file system."""
    processes.EXEC_TIMEOUT = 0.5
    setattr(os, moment, lambda *_: time.sleep(50))
    begin = time.monotonic()
    try:
        start("-c", "pass")
    except TimeoutError as error:
        print(f"{error.strerror}: {error.filename == sys.executable} {time.monotonic() - begin < 20}")
    while processes.reap()[1] and time.monotonic() - begin < 20:
        time.sleep(0.01)
    print(processes.reap())


def parent_dies() -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        print(start("-c", SLEEP, streams=(0, writer, 2)), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    os.wait()
    print(os.read(reader, 1))  # returns when the last writer has ended


def orphans() -> None:
    processes.adopt_orphans()
    start(THREE_ORPHANS)
    steady = 0
    while steady < 10:  # the processes in between have ended
        time.sleep(0.02)
        processes.reap()
        steady = steady + 1 if len(processes.descendants(os.getpid())) == 3 else 0
    print(len(processes.descendants(os.getpid())), processes.end_descendants(timeout=250))
    print(processes.descendants(os.getpid()))


def signals_to_the_dead() -> None:
    pid = start("-c", "pass")
    os.wait()
    processes.kill(pid, signal.SIGKILL)
    processes.kill(-pid, signal.SIGKILL)
    print(processes.is_alive(pid), processes.is_alive(os.getpid()))


def parent_dies_while_it_starts(moment: str) -> None:
    """The parent has a handler for the signal, as the launcher has."""
    SignalPipe((signal.SIGTERM,))
    original, parent = getattr(os, moment), os.getpid()

    def dies(*arguments: object) -> object:
        os.kill(parent, signal.SIGKILL)
        while os.getppid() == parent:
            time.sleep(0.001)
        return original(*arguments)

    setattr(os, moment, dies)
    start("-c", SLEEP, session=True, death_signal=signal.SIGTERM)


globals()[sys.argv[1]](*sys.argv[2:])
