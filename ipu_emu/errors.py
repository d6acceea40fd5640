"""Errors of ipu_emu; the PopART face shows each under PopART's own name.

EmulatorError                     popart_exception
+-- RefusedError                  popart_exception
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

__all__ = [
    "ApplicationRuntimeError",
    "EmulatorError",
    "FeedError",
    "InternalError",
    "OutOfMemoryError",
    "PoplarError",
    "PoplarRuntimeError",
    "PoplibsError",
    "RecoverableError",
    "RefusedError",
    "SessionError",
    "SystemRuntimeError",
    "UnknownError",
    "UnrecoverableError",
]


class EmulatorError(Exception):
    """A graph, an option or a call that is wrong; the text is in ``args[0]``."""


class RefusedError(EmulatorError):
    """An op that is refused as soon as it is added: inputs too few or too many, a negative dimension."""


class InternalError(EmulatorError):
    """A rule of the emulator itself was broken."""


class SessionError(EmulatorError):
    """A session was used in the wrong order or with the wrong data."""


class FeedError(SessionError):
    """Step data could not be had: a source, a preparation or a worker failed, or took too long."""


class OutOfMemoryError(EmulatorError):
    """A model does not fit the memory of its IPUs."""


class PoplibsError(Exception):
    """An operation was asked for sizes that it cannot have."""


class PoplarError(Exception):
    """Base of the errors that concern a device."""


class PoplarRuntimeError(PoplarError):
    """A program failed while it ran on a device."""


class ApplicationRuntimeError(PoplarRuntimeError):
    """The failure lies in the program."""


class SystemRuntimeError(PoplarRuntimeError):
    """The failure lies in the system."""


class RecoverableError(SystemRuntimeError):
    """The system can be reset and used again."""


class UnrecoverableError(SystemRuntimeError):
    """The system needs repair."""


class UnknownError(SystemRuntimeError):
    """Whether the system can be used again is unknown."""
