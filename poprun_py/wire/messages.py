"""Messages: the protocol between launcher and supervisor: one class per kind of message, checked when decoded.

supervisor                                         launcher
Hello         the supervisor of rank r is ready ->
                                                <-   Start       start the program
Started       its pid, CPUs and memory nodes    ->               (or NotStarted, with the reason)
Output        bytes that it wrote               ->
                                                <-   Credit      bytes delivered: send as many more
                                                <-   Input       bytes for its stdin; empty: close it
InputTaken    stdin has taken the input         ->
Usage         its CPU time and memory           ->               (only with a progress display)
Report        the progress that it reports      ->               (the same)
Hung          it raised, and waits for others   ->
Lost          it has learned that a peer ended  ->
Leaving       it is about to end, with a code   ->
Waiting       it ended, and waits for others    ->
Orphaned      the supervisor's parent was killed ->              (not by the MPI)
                                                <-   Signal      send it a signal
                                                <-   Stop        end it, with a signal and a grace period
Exited        its exit code or signal           ->
Gone          none of its processes is left     ->
                                                <-   Leave       the supervisor may end
"""
# Without "from __future__ import annotations": messages are checked against the types below.

from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

import msgpack

from poprun_py.errors import ChannelError

#: Bytes of the largest message that is accepted.
LARGEST = 4 << 20

#: What ended a program: the program itself, a Stop from the launcher, the MPI's process manager; UNMANAGED: unknown,
#: because the process manager was gone when the program ended.
OWN, LAUNCHER, MPI, UNMANAGED = "own", "launcher", "mpi", "unmanaged"

#: Streams of a program, by descriptor, and their names.
STDOUT, STDERR = 1, 2
STREAMS = {STDOUT: "stdout", STDERR: "stderr"}


class Hello(NamedTuple):
    rank: int
    host: str
    pid: int


class Start(NamedTuple):
    argv: list[str]
    executable: str
    cwd: str
    environment: dict[str, str]  # added to what it inherits
    unset: list[str]  # removed from what it inherits
    has_input: bool  # Input will follow; otherwise its stdin is empty
    folder: str  # the job's own on each host, removed at its end; empty: none
    shared: list[str]  # variables to set to the job's own folder for shared memory
    usage_interval: float  # seconds between two Usage and Report messages; 0: none
    placement: str  # a name of placement.STRATEGIES
    local_index: int  # of this instance on its host
    local_count: int  # instances on its host
    threads: list[str]  # variables to set to the number of threads of the instance
    network: str  # subnet for MPI to use, such as 10.0.0.0/24; empty: its own choice


class Started(NamedTuple):
    pid: int
    cpus: list[int]  # on which it runs
    memory: list[int]  # nodes from which it allocates
    warning: str  # what could not be set up; empty: nothing
    at: float  # monotonic seconds of its host


class NotStarted(NamedTuple):
    reason: str


class Output(NamedTuple):
    stream: int  # STDOUT or STDERR
    data: bytes


class Credit(NamedTuple):
    amount: int


class Input(NamedTuple):
    data: bytes


class InputTaken(NamedTuple):
    pass


class Usage(NamedTuple):
    """What the program and all its descendants use."""

    cpu: float  # seconds since its start
    rss: int  # resident memory, bytes


class Report(NamedTuple):
    """The latest values that the program passed to popdist_py.report()."""

    step: int  # -1: not reported
    samples: int  # since its start
    loss: float  # NaN: not reported


class Hung(NamedTuple):
    """An exception has ended the program, but its process stays; it may wait in MPI_Finalize for the others."""


class Lost(NamedTuple):
    """The program has learned, by itself, that it cannot continue because a peer has ended or left."""

    peer: int  # its rank; -1: not known
    left: bool  # the peer has said that it leaves; otherwise it may have been killed


class Leaving(NamedTuple):
    """The program is ending by itself, and its process will exit."""

    code: int
    raised: bool  # by an uncaught exception; otherwise by sys.exit, which it may have caught since
    at: float  # monotonic seconds of its host


class Waiting(NamedTuple):
    """The program has ended, successfully or not, but its process waits in MPI_Finalize for the others."""


class Orphaned(NamedTuple):
    """The supervisor's parent was killed, and not by the MPI, before the instance had ended or was to end."""

    parent: int  # its pid
    at: float  # monotonic seconds of its host


class Signal(NamedTuple):
    number: int


class Stop(NamedTuple):
    number: int
    grace: float  # seconds from the signal until SIGKILL
    settle: float = 0.0  # seconds that the program has to end by itself before the signal


class Exited(NamedTuple):
    status: int  # exit code, or minus the signal
    cause: str  # OWN, LAUNCHER, MPI or UNMANAGED
    at: float  # monotonic seconds of its host


class Gone(NamedTuple):
    pass


class Leave(NamedTuple):
    pass


Order: TypeAlias = Start | Credit | Input | Signal | Stop | Leave
InstanceState: TypeAlias = Hello | Started | NotStarted | Hung | Waiting | Orphaned | Exited | Gone
ProgramData: TypeAlias = Output | InputTaken | Usage | Report | Lost | Leaving
Message: TypeAlias = Order | InstanceState | ProgramData

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Encode a message as msgpack; text may contain bytes that are no UTF-8 (surrogateescape)."""
    packed: bytes = msgpack.packb((type(message).__name__, *message), unicode_errors="surrogateescape")
    return packed


def decode(data: bytes) -> Message:
    """Decode a message; raise ChannelError unless ``data`` is exactly one message of the table."""
    try:
        parts = msgpack.unpackb(data, unicode_errors="surrogateescape", use_list=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise ChannelError(f"a message that is not msgpack: {error!r}") from None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str) or parts[0] not in _KINDS:
        raise ChannelError("a message of an unknown kind")
    kind, values = _KINDS[parts[0]], parts[1:]
    types = kind.__annotations__.values()
    if len(values) != len(types) or not all(map(_fits, values, types)):
        raise ChannelError(f"a malformed {parts[0]} message")
    message: Message = kind(*values)
    return message


def _fits(value: object, expected: Any) -> bool:
    """Whether ``value`` is of the type ``expected``: a plain type, a list of one, or a dict of two."""
    inner = get_args(expected)
    if isinstance(value, list):
        return get_origin(expected) is list and all(type(item) is inner[0] for item in value)
    if isinstance(value, dict):
        return get_origin(expected) is dict and all(
            type(key) is inner[0] and type(item) is inner[1] for key, item in value.items()
        )
    return type(value) is expected
