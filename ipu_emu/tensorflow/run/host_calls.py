"""Host calls: functions of the emulator as ops of a session's graph, and the errors that they end with.

TensorFlow replaces an error of such a function by its own and logs the function's traceback, unless the error is the
end of data. So a failed call raises the end of data, with a number in its text under which its error is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import script_ops

from ipu_emu.errors import EmulatorError, InternalError
from ipu_emu.tensorflow.trace.frontend_state import frontend_state
from popdist_py.errors import PopdistError

_KEPT = re.compile(r"host call ([0-9a-f]{32})")

#: The most errors that are stored until the session's caller raises them; several calls of a run may fail.
_MOST_WAITING = 16


def host_call(function: Callable[..., Any], inputs: Sequence[Any], types: Any, name: str) -> Any:
    """The results of ``function``, called with the arrays of ``inputs`` whenever the op runs.

    Outside sessions TensorFlow itself reports the error of the function.
    """
    in_session = not getattr(ops.get_default_graph(), "building_function", False)
    return script_ops.numpy_function(_silent(function) if in_session else function, list(inputs), types, name=name)


def _silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` such that its errors are stored."""

    def call(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except BaseException as error:
            waiting, number = frontend_state().errors, uuid4().hex
            while len(waiting) >= _MOST_WAITING:
                del waiting[next(iter(waiting))]
            waiting[number] = error
        raise StopIteration(f"host call {number}")

    return call


def own_error(error: BaseException) -> BaseException | None:
    """Remove and return the stored error that made a run end with ``error``, None if there is none."""
    match = _KEPT.search(str(error))
    return None if match is None else frontend_state().errors.pop(match[1], None)


def translated(error: BaseException) -> BaseException:
    """Convert an error of the emulator to the class that a session of TensorFlow raises."""
    if not isinstance(error, EmulatorError | PopdistError):
        return error.with_traceback(None if isinstance(error, errors.OpError) else error.__traceback__)
    text = str(error.args[0] if error.args else error)
    kinds: dict[type, Any] = {
        NotImplementedError: errors.UnimplementedError,
        ValueError: errors.InvalidArgumentError,
        TypeError: errors.InvalidArgumentError,
    }
    kind = next((kinds[base] for base in kinds if isinstance(error, base)), errors.FailedPreconditionError)
    if type(error).__name__ == "OutOfMemoryException":
        kind = errors.ResourceExhaustedError
    converted: BaseException = kind(None, None, text)
    for note in getattr(error, "__notes__", ()):
        converted.add_note(note)
    if isinstance(error, InternalError):
        converted.__cause__ = error
    return converted
