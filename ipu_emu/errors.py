"""Errors: the exceptions of ipu_emu, which appear in tracebacks under PopART's names.

EmulatorError                     popart_exception
+-- RefusedError                  popart_exception
+-- ArgumentError                 popart_exception, also a ValueError
+-- ArgumentTypeError             popart_exception, also a TypeError
+-- MissingDataError              popart_exception
+-- OpenShapeError                popart_exception
+-- UnsupportedError              popart_exception, also a NotImplementedError
+-- InternalError                 popart_internal_exception
+-- SessionError                  popart_runtime_error
|   +-- FeedError                 popart_runtime_error
+-- OutOfMemoryError              OutOfMemoryException
PoplibsError                      poplibs_exception
PoplarError                       poplar_exception
+-- PoplarRuntimeError            poplar_runtime_error
    +-- ApplicationRuntimeError   poplar_application_runtime_error
    +-- SystemRuntimeError        poplar_system_runtime_error
        +-- RecoverableError      poplar_recoverable_runtime_error
        +-- UnrecoverableError    poplar_unrecoverable_runtime_error
        +-- UnknownError          poplar_unknown_runtime_error
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Kind = TypeVar("_Kind", bound=type[BaseException])


def _named(name: str) -> Callable[[_Kind], _Kind]:
    """Make a class appear as ``ipu_emu.popart.name``."""

    def rename(kind: _Kind) -> _Kind:
        kind.__module__, kind.__name__, kind.__qualname__ = "ipu_emu.popart", name, name
        return kind

    return rename


@_named("popart_exception")
class EmulatorError(Exception):
    """An invalid graph, option or call; the message is in ``args[0]``, and a traceback also shows the note."""

    def __init__(self, *args: object, note: str = "") -> None:
        super().__init__(*args)
        if note:
            self.add_note(note)


@_named("popart_exception")
class RefusedError(EmulatorError):
    """An op that is refused as soon as it is added: inputs too few or too many, a negative dimension."""


@_named("popart_exception")
class ArgumentError(EmulatorError, ValueError):
    """An invalid argument of a framework's pipeline call."""


@_named("popart_exception")
class ArgumentTypeError(EmulatorError, TypeError):
    """An argument of the wrong type in a framework's pipeline call."""


@_named("popart_exception")
class MissingDataError(EmulatorError):
    """The ``file`` with the external data of the initializer ``id`` does not exist."""

    def __init__(self, id: str, file: str) -> None:
        super().__init__(f"Unrecognised file name '{file}' for externally stored tensor '{id}'")
        self.id, self.file = id, file


@_named("popart_exception")
class OpenShapeError(EmulatorError):
    """A model leaves ``sizes`` of an input open: those that are names, or '?'."""

    def __init__(self, input: str, sizes: Sequence[int | str]) -> None:
        super().__init__(f"Input '{input}' has the shape {list(sizes)}; export the model with fixed sizes")
        self.input, self.sizes = input, sizes


@_named("popart_exception")
class UnsupportedError(EmulatorError, NotImplementedError):
    """A pipeline that the frameworks do not support."""


@_named("popart_internal_exception")
class InternalError(EmulatorError):
    """A bug in the emulator: an internal rule is violated."""


@_named("popart_runtime_error")
class SessionError(EmulatorError):
    """A session was used in the wrong order or with the wrong data."""


class FeedError(SessionError):
    """Step data are not available: a source, a preparation or a worker failed, or took too long."""


@_named("OutOfMemoryException")
class OutOfMemoryError(EmulatorError):
    """A model does not fit the memory of its IPUs."""


@_named("poplibs_exception")
class PoplibsError(Exception):
    """An operation was given sizes that it does not support."""


@_named("poplar_exception")
class PoplarError(Exception):
    """Base of the errors that concern a device."""


@_named("poplar_runtime_error")
class PoplarRuntimeError(PoplarError):
    """A program failed while it ran on a device."""


@_named("poplar_application_runtime_error")
class ApplicationRuntimeError(PoplarRuntimeError):
    """The failure lies in the program."""


@_named("poplar_system_runtime_error")
class SystemRuntimeError(PoplarRuntimeError):
    """The failure lies in the system."""


@_named("poplar_recoverable_runtime_error")
class RecoverableError(SystemRuntimeError):
    """The system can be reset and used again; ``recoveryAction`` is how, as PopART numbers it."""

    recoveryAction: object = None


@_named("poplar_unrecoverable_runtime_error")
class UnrecoverableError(SystemRuntimeError):
    """The system needs repair."""


@_named("poplar_unknown_runtime_error")
class UnknownError(SystemRuntimeError):
    """Whether the system can be used again is unknown."""
