"""Warm Python: a server that forks Python processes after large imports; each behaves like a new process.

    python warm_python.py SOCKET MODULE ...

imports once, then forks for each request until stdin ends.
The client at the socket is ``warm_run.py``, with WHAT to run, as for Python: a file, ``-m MODULE`` or ``-c CODE``,
optionally after ``-u``, and arguments. The forked process gets these, and the environment, folder, ignored signals,
processors, file descriptors, host and network (namespaces) of the client. It ends without cleaning up the state from
before the fork, unless its environment has WARM_WHOLE_END.
"""

import marshal
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

_MOST_DESCRIPTORS = 250
#: The namespaces of a host that a test creates; ``mnt`` is the last, because the others are found in /proc.
_NAMESPACES = ("uts", "ipc", "net", "time", "mnt")


def serve(path: str) -> list[str]:
    """Answer requests until stdin ends; return only in forked processes, with the arguments of the program."""
    import selectors

    waiting = selectors.DefaultSelector()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1000)
        if os.fork():  # tests count the children of their process, so this must not be one
            os._exit(0)
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(listener, selectors.EVENT_READ)
        processes: dict[socket.socket, int] = {}
        while True:
            for key, _ in waiting.select():
                if key.fileobj == 0:
                    for pid in processes.values():
                        os.kill(pid, signal.SIGKILL)
                    _remove(path)
                    os._exit(0)
                elif key.fileobj is listener:
                    client = listener.accept()[0]
                    try:
                        request, received = _request(client)
                    except (OSError, EOFError):  # the client was killed
                        client.close()
                        continue
                    pid = os.fork()
                    if not pid:
                        _join_namespaces(client)
                        waiting.close()
                        for other in (listener, client, *processes):
                            other.close()
                        return _become(*request, received)
                    for number in received:
                        os.close(number)
                    processes[client] = pid
                    waiting.register(client, selectors.EVENT_READ)
                    waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, client)
                    _tell(client, pid)
                elif key.data is None:  # the client is gone
                    if key.fileobj in processes:  # else its process ended at the same moment, and was told above
                        waiting.unregister(key.fileobj)
                        os.kill(processes[key.fileobj], signal.SIGKILL)  # type: ignore[index]
                else:
                    client = key.data
                    status = os.waitpid(processes.pop(client), 0)[1]
                    waiting.unregister(key.fileobj)
                    os.close(key.fd)
                    if client in {key.fileobj for key in waiting.get_map().values()}:
                        waiting.unregister(client)
                        _tell(client, status)
                    client.close()


def _remove(path: str) -> None:
    """Remove the files of this server, and the folder if no other server uses it."""
    folder = os.path.dirname(path)
    os.remove(path)
    os.remove(f"{path}.alive")
    with suppress(OSError):  # another server removed it
        if os.listdir(folder) == ["lock"]:
            os.remove(f"{folder}/lock")
            os.rmdir(folder)


def _tell(client: socket.socket, number: int) -> None:
    """Send a number to the client, which may be gone."""
    with suppress(OSError):
        client.sendall(struct.pack("i", number))


def _request(client: socket.socket) -> tuple[tuple, list[int]]:  # type: ignore[type-arg]
    length, received, _, _ = socket.recv_fds(client, 4, _MOST_DESCRIPTORS)
    try:
        return marshal.loads(_read(client, *struct.unpack("I", length or _read(client, 4)))), received
    except EOFError:
        for number in received:
            os.close(number)
        raise


def _join_namespaces(client: socket.socket) -> None:
    """Join the host and network namespaces of the client."""
    form = "iii"
    pid, _, _ = struct.unpack(form, client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form)))
    others = []
    try:
        for name in _NAMESPACES:
            theirs = f"/proc/{pid}/ns/{name}"
            if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{name}"):
                others.append(os.open(theirs, os.O_RDONLY))
    except FileNotFoundError:  # the client is gone
        os._exit(1)
    if others:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        for namespace in others:
            if libc.setns(namespace, 0):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(namespace)


def _become(
    argv: list[str],
    own: tuple[dict[str, str], str, list[int], set[int]],
    numbers: list[int],
    received: list[int],
) -> list[str]:
    """Take on the state of a process that was started like this."""
    import random

    environ, folder, ignored, processors = own
    spare = 1 + max(*numbers, *received)
    moved = [os.dup2(number, spare + index) for index, number in enumerate(received)]
    for number in received:
        os.close(number)
    for source, number in zip(moved, numbers, strict=True):
        os.dup2(source, number)
        os.close(source)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    os.sched_setaffinity(0, processors)
    for ignored_signal in ignored:
        signal.signal(ignored_signal, signal.SIG_IGN)
    random.seed()
    unbuffered = argv[0] == "-u"
    _open_streams(unbuffered or bool(environ.get("PYTHONUNBUFFERED")))
    return argv[unbuffered:]


def _open_streams(unbuffered: bool) -> None:
    """Reopen the streams of sys, which cache whether they are terminals and can seek."""
    import io

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, stream = getattr(sys, name), None
        if _is_open(number):
            file = os.fdopen(number, "wb" if number else "rb", 0 if number and unbuffered else -1, closefd=False)
            form = {"encoding": old.encoding, "errors": old.errors, "write_through": unbuffered}
            stream = io.TextIOWrapper(file, line_buffering=number == 2 or file.isatty(), **form)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:  # the descriptor that listed the folder
        return False
    return True


def _read(stream: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = stream.recv(length - len(data))
        if not part:
            raise EOFError("the other end of a socket of warm_python.py is gone")
        data += part
    return data


def _pass_over_libraries() -> None:
    """Skip the exit handlers of libraries that were loaded before the fork, but not of later ones.

    The functions of C that are called at the end are called in the reverse order of how they were given.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # with the exit code; what was given before is never called
    libc.__cxa_atexit(libc.fflush, None, None)


def _pass_over_modules(imported: list[Any]) -> None:
    """Skip modules that were imported before the fork when the interpreter finalises.

    Objects of the program itself are cleared as usual, except those in reference cycles. ``imported`` contains itself
    first: that cycle keeps the modules alive.
    """
    import gc

    for name, _ in imported[1:]:
        sys.modules.pop(name, None)
    gc.freeze()


if __name__ == "__main__":
    import atexit
    import gc
    import runpy
    import types
    from importlib import import_module

    imported: list[object] = []
    atexit.register(_pass_over_modules, imported)  # registered first, so it is called last
    for name in sys.argv[2:]:
        import_module(name)
    gc.freeze()
    first, *sys.argv[1:] = serve(sys.argv[1])
    # Clearing the objects from before the fork would copy their memory, which takes longer than most programs.
    if "WARM_WHOLE_END" not in os.environ:
        _pass_over_libraries()
        modules = [item for item in sys.modules.items() if item[0] not in ("sys", "builtins", "__main__")]
        imported += [imported, *modules]
    # As in a new process, the variables of the program live until the interpreter ends.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    folder = {"-m": os.getcwd(), "-c": ""}.get(first, os.path.dirname(os.path.realpath(first)))
    sys.path[:1] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if first == "-m":
        del sys.argv[0]
        runpy._run_module_as_main(sys.argv[0])  # type: ignore[attr-defined]  # what Python itself does for -m
    elif first == "-c":
        source = sys.argv.pop(1)
        sys.argv[0] = first
        exec(compile(source, "<string>", "exec"), vars(main))
    else:
        sys.argv[0] = main.__file__ = first
        with open(first, "rb") as file:
            code = compile(file.read(), first, "exec")
        exec(code, vars(main))
