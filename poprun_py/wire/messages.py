"""Messages: what launcher and supervisor say to each other, one row per kind, checked when read.

supervisor                                launcher
Hello         here I am, rank r      ->
                                     <-   Start       run this
Started       its pid                ->                            (or NotStarted, and why not)
Output        bytes it wrote         ->
                                     <-   Credit      bytes dealt with: send that many more
                                     <-   Input       bytes for its stdin; none: the end of it
InputTaken                           ->
Usage         CPU and memory         ->                            (where somebody watches)
Report        what it says of itself ->                            (the same)
Hung          it raised, and waits   ->
Waiting       it waits, nobody knows ->
                                     <-   Signal      pass it on
                                     <-   Stop        end it, and how patiently
Exited        how it ended           ->
Gone          nothing is left of it  ->
                                     <-   Leave       all instances are gone: you may go too
"""
# Without "from __future__ import annotations": the types below are read when a message is checked.

from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

import msgpack

from poprun_py.errors import ChannelError

__all__ = [
    "LARGEST",
    "LAUNCHER",
    "MPI",
    "OWN",
    "UNMANAGED",
    "Credit",
    "Exited",
    "Gone",
    "Hello",
    "Hung",
    "Input",
    "InputTaken",
    "Leave",
    "Message",
    "NotStarted",
    "Output",
    "Report",
    "Signal",
    "Start",
    "Started",
    "Stop",
    "Usage",
    "Waiting",
    "decode",
    "encode",
]

#: Bytes of the largest message that is accepted.
LARGEST = 4 << 20

#: Causes of an end: the program itself, a Stop of the launcher, the MPI's process manager; or nobody knows, because
#: the process manager was gone when the program ended by itself.
OWN, LAUNCHER, MPI, UNMANAGED = "own", "launcher", "mpi", "unmanaged"


class Hello(NamedTuple):
    rank: int
    host: str
    pid: int


class Start(NamedTuple):
    argv: list[str]
    executable: str
    cwd: str
    environment: dict[str, str]  # added to what it inherits
    unset: list[str]  # taken from what it inherits
    has_input: bool  # Input will follow; else its stdin is empty
    since: float  # when the job began, seconds of the epoch
    folder: str  # made for the job, removed at its end; empty: none
    watch: float  # seconds between two Usage and Report messages; 0: none
    placement: str  # a name of placement.STRATEGIES
    local_index: int  # of this instance on its host
    local_count: int  # instances on its host
    threads: list[str]  # variables that are to say how many threads the instance uses
    network: str  # subnet that MPI is to use, such as 10.0.0.0/24; empty: its own choice


class Started(NamedTuple):
    pid: int
    cpus: list[int]  # that it runs on
    memory: list[int]  # nodes that it allocates from
    warning: str  # what could not be arranged for it


class NotStarted(NamedTuple):
    reason: str


class Output(NamedTuple):
    stream: int  # 1 or 2
    data: bytes


class Credit(NamedTuple):
    amount: int


class Input(NamedTuple):
    data: bytes


class InputTaken(NamedTuple):
    pass


class Usage(NamedTuple):
    """What the program and all below it take."""

    cpu: float  # seconds since its start
    rss: int  # bytes


class Report(NamedTuple):
    """What the program said last through popdist_py.report()."""

    step: int  # -1: not said
    samples: int  # since its start
    loss: float  # NaN: not said


class Hung(NamedTuple):
    """An exception has ended the program, but its process waits in MPI_Finalize."""


class Waiting(NamedTuple):
    """The program has ended, well or not, but its process waits in MPI_Finalize for the others."""


class Signal(NamedTuple):
    number: int


class Stop(NamedTuple):
    number: int
    grace: float  # seconds until SIGKILL


class Exited(NamedTuple):
    status: int  # exit code, or minus the signal
    cause: str  # OWN, LAUNCHER, MPI or UNMANAGED
    at: float  # monotonic seconds of its host


class Gone(NamedTuple):
    pass


class Leave(NamedTuple):
    failed: bool  # the MPI may have left something on the supervisor's host


Message: TypeAlias = (
    Hello
    | Start
    | Started
    | NotStarted
    | Output
    | Credit
    | Input
    | InputTaken
    | Usage
    | Report
    | Hung
    | Waiting
    | Signal
    | Stop
    | Exited
    | Gone
    | Leave
)

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """A message as msgpack; text may hold bytes that are no UTF-8 (surrogateescape)."""
    packed: bytes = msgpack.packb((type(message).__name__, *message), unicode_errors="surrogateescape")
    return packed


def decode(data: bytes) -> Message:
    """The message in ``data``; raise ChannelError for anything that is not exactly one of the kinds."""
    try:
        parts = msgpack.unpackb(data, unicode_errors="surrogateescape", use_list=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise ChannelError(f"a message that is no msgpack: {error!r}") from None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str) or parts[0] not in _KINDS:
        raise ChannelError("a message of no known kind")
    kind, values = _KINDS[parts[0]], parts[1:]
    types = kind.__annotations__.values()
    if len(values) != len(types) or not all(map(_fits, values, types)):
        raise ChannelError(f"a malformed {parts[0]} message")
    message: Message = kind(*values)
    return message


def _fits(value: object, wanted: Any) -> bool:
    """Is ``value`` of a plain type, a list of one, or a dict of two?"""
    inner = get_args(wanted)
    if isinstance(value, list):
        return get_origin(wanted) is list and all(type(item) is inner[0] for item in value)
    if isinstance(value, dict):
        return get_origin(wanted) is dict and all(
            type(key) is inner[0] and type(item) is inner[1] for key, item in value.items()
        )
    return type(value) is wanted
