"""The recorder of this process: created at the first use if ``IPU_EMU_TRACE`` names a folder."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from popdist_py.environment import ENGINE_OPTIONS, PVTI_OPTIONS, TRACE_FOLDER, TRACE_LIMIT
from popdist_py.messages.user_warning import warn_user
from popdist_py.trace.kept_span import KeptSpan
from popdist_py.trace.recorder import Recorder, Span
from popdist_py.trace.records import Category, Kind, key_of

_DEFAULT_LIMIT_MIB = 512
_LIMIT_DIGITS = 9
#: The values of a switch in a variable that switch it on.
_ON = ("true", "1")

_SPAN = key_of(Kind.SPAN, 0)
_USER = Category.USER
#: The most marks of a thread and category that are cached.
_MOST_KEPT = 1000
_F = TypeVar("_F", bound=Callable[..., Any])
_What = tuple[str, Category, dict[str, Any]]


class Mark(Protocol):
    """A context manager that is a decorator too."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def __call__(self, function: _F, /) -> _F: ...


class _Marks(Protocol):
    """The marks without arguments that a thread has used, by name; other categories than the user's by category."""

    user: dict[str, Mark]
    others: dict[str, dict[str, Mark]]


class _ProcessRecorder:
    """The recorder of this process, after ``decide`` has been called."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.known = False
        self.marks = _no_marks()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Make a forked child write a separate file."""
        self.recorder, self.known, self.marks = None, False, _no_marks()

    def decide(self) -> Recorder | None:
        """Create the recorder if the environment asks for one."""
        self.known = True
        _say_unread()
        folder = os.environ.get(TRACE_FOLDER) or _asked(PVTI_OPTIONS, "enable", "directory")
        folder = folder or _asked(ENGINE_OPTIONS, "autoReport.all", "autoReport.directory")
        return start(folder) if folder else None


def _no_marks() -> _Marks:
    return cast(_Marks, threading.local())  # its own class: attributes of subclasses take longer


_process = _ProcessRecorder()


def recorder() -> Recorder | None:
    """The recorder of this process; None if nothing is recorded."""
    return _process.recorder if _process.known else _process.decide()


def start(folder: str | os.PathLike[str], *, role: str = "") -> Recorder | None:
    """Start recording into a new file in ``folder``; on failure print why to standard error and return None."""
    stop()
    try:
        _process.recorder = Recorder(os.path.abspath(folder), limit=_limit() << 20, about=_about(role))
    except OSError as error:
        print(f"no trace is recorded: {folder}: {error.strerror}", file=sys.stderr)
    _process.marks = _no_marks()  # without those that a thread has kept meanwhile
    return _process.recorder


def stop() -> None:
    """Stop recording in this process; existing records are kept."""
    if _process.recorder is not None:
        _process.recorder.close()
    _process.recorder, _process.known, _process.marks = None, True, _no_marks()


def span(name: str, category: Category = Category.USER, **args: Any) -> Mark:
    """A context manager, and a decorator, that records how long its block takes; ``args`` are shown with it."""
    if args:
        return _mark(name, category, args)
    try:
        if category is _USER:
            return _process.marks.user[name]
        return _process.marks.others[category][name]
    except (AttributeError, KeyError):
        return _kept(name, category)


def _kept(name: str, category: Category) -> Mark:
    """A mark without arguments, which this thread caches unless it has many."""
    own, marks = recorder(), _process.marks
    if not hasattr(marks, "user"):
        marks.user, marks.others = {}, {}
    cache: dict[str, Mark] = marks.user if category is _USER else marks.others.setdefault(category, {})
    if len(cache) >= _MOST_KEPT:
        return _mark(name, category, {})
    cache[name] = _mark(name, category, {}) if own is None else _Kept(own, _SPAN | own.name(name, category))
    return cache[name]


def _mark(name: str, category: Category, args: dict[str, Any]) -> Mark:
    own = recorder()
    if own is None:
        unrecorded = _Unrecorded()
        unrecorded.what = name, category, args
        return unrecorded
    number = None if args else own.plain.get((name, category))
    return _Recorded(own, _SPAN | (own.name(name, category, **args) if number is None else number))


def instant(name: str, category: Category = Category.USER, **args: Any) -> None:
    """Record an event at the current time."""
    own = recorder()
    if own is not None:
        own.instant(own.name(name, category, **args))


def counter(name: str, value: float, category: Category = Category.USER) -> None:
    """Record the current value of a counter."""
    own = recorder()
    if own is not None:
        own.counter(own.name(name, category), value)


def flow(name: str, number: int, *, out: bool, category: Category = Category.USER) -> None:
    """Record one end of a transfer between threads or processes; both ends give the same ``number``."""
    own = recorder()
    if own is not None:
        own.flow(own.name(name, category), number, out=out)


class _Recorded(Span):
    """A span that can decorate a function."""

    __slots__ = ()

    def __call__(self, function: _F) -> _F:
        return _decorated(self.recorder.meaning(self.key ^ _SPAN), function)


class _Kept(KeptSpan):
    """A kept span that can decorate a function."""

    __slots__ = ()

    def __call__(self, function: _F) -> _F:
        return _decorated(self.recorder.meaning(self.key ^ _SPAN), function)


class _Unrecorded:
    """Records nothing for a block; a function that it decorates records its calls once recording has started."""

    __slots__ = ("what",)

    what: _What

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, function: _F) -> _F:
        return _decorated(self.what, function)


def _decorated(what: _What, function: _F) -> _F:
    name, category, args = what

    @wraps(function)
    def recorded(*arguments: Any, **named: Any) -> Any:
        with span(name, category, **args):
            return function(*arguments, **named)

    return cast(_F, recorded)


def _asked(variable: str, switch: str, key: str) -> str:
    """The folder that a variable with a JSON object requests; empty without one, or if it is malformed."""
    options = _json_object(variable) or {}
    return str(options.get(key) or ".") if str(options.get(switch, "")).lower() in _ON else ""


def _json_object(variable: str) -> dict[str, Any] | None:
    """The JSON object in a variable; None if it has other text."""
    try:
        options = json.loads(os.environ.get(variable) or "{}")
    except (ValueError, RecursionError):
        return None
    return options if isinstance(options, dict) else None


def _say_unread() -> None:
    """Warn of what PVTI_OPTIONS has that is not read; the reader of the engine options warns of those."""
    options = _json_object(PVTI_OPTIONS)
    if options is None:
        warn_user(f"{PVTI_OPTIONS} is not a JSON object and is ignored: {os.environ[PVTI_OPTIONS]}")
        return
    switch = str(options.get("enable", "false")).lower()
    unread = sorted(options.keys() - ({"enable", "directory"} if switch in (*_ON, "false", "0") else {"directory"}))
    if unread:
        listed = ", ".join(f"{key}={options[key]!r}" for key in unread)
        warn_user(f"{PVTI_OPTIONS} ignores {listed}: its options are enable, true or false, and directory")


def _limit() -> int:
    text = os.environ.get(TRACE_LIMIT, "")
    if not text:
        return _DEFAULT_LIMIT_MIB
    if text.isdecimal() and len(text) <= _LIMIT_DIGITS and int(text):
        return int(text)
    print(f"{TRACE_LIMIT}={text[:40]!r} is not a number of MiB; {_DEFAULT_LIMIT_MIB} are used", file=sys.stderr)
    return _DEFAULT_LIMIT_MIB


def _about(role: str) -> dict[str, Any]:
    """What identifies the process, its host and its clock."""
    before = time.perf_counter_ns()
    realtime = time.time_ns()
    after = time.perf_counter_ns()
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "host": os.uname().nodename,
        "boot": boot(),
        "role": role,
        "arguments": _arguments(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith("POPDIST_")},
        "clock": {"monotonic_ns": (before + after) // 2, "realtime_ns": realtime, "error_ns": after - before},
    }


def _arguments() -> list[str]:
    """The command line as other processes see it: without the values that the launcher has hidden."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return sys.orig_argv[:1]


def boot() -> str:
    """Identify the clock of this process: processes of one boot and time namespace share CLOCK_MONOTONIC."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            number = file.read().strip()
        return f"{number}:{os.readlink('/proc/self/ns/time')}"
    except OSError:
        return os.uname().nodename
