"""SourceNode: an op of TensorFlow with its imported inputs, the argument of an import rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, UnsupportedError
from ipu_emu.graph import Graph
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, Variable, device_dtype

__all__ = ["Outputs", "Rule", "SourceNode", "Writer", "location_of", "refused"]

_PACKAGE = str(Path(__file__).parents[2]) + "/"
#: What a rule returns: the values of the outputs, in order; one value for an op with one output.
Outputs = "Value | Held | Imported | Sequence[Value | Held | Imported | None] | None"
Rule = Callable[["SourceNode"], Any]


class Writer(Protocol):
    """The part of the importer that rules use."""

    graph: Graph
    replicas: int
    #: Replicas that share the statistics of a batch normalisation.
    norm_group: int

    def constant(self, array: NDArray[Any]) -> Value:
        """Return a constant of the graph."""

    def plain(self, held: Held) -> Value:
        """Return a tensor in TensorFlow's order of axes."""

    def first(self, held: Held) -> Value:
        """Return a batch of images in the order [N, C, H, W]."""

    def apply(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int = 1) -> list[Value]:
        """Append an op."""

    def read(self, variable: Variable) -> Value:
        """Return the current value of a variable."""

    def assign(self, variable: Variable, value: Value) -> None:
        """Change the value of a variable."""

    def random(self, type: str, shape: Sequence[int], numpy: Any, values: Sequence[float], salt: str) -> Value:
        """Return random numbers."""

    def branch(self, node: SourceNode, functions: Sequence[Any]) -> list[Any]:
        """Import the branches of an op; return the outputs of the one that its first input selects."""

    def loop(self, node: SourceNode, condition: Any, body: Any, values: Sequence[Imported]) -> list[Imported]:
        """Append a loop whose number of iterations is computed on the device; return the values after it."""

    def call(self, function: Any, inputs: Sequence[Imported]) -> list[Imported]:
        """Import the body of a function."""

    def function_of(self, op: Any, name: str) -> Any:
        """Return the graph of the function that an attribute of ``op`` names."""

    def functions_of(self, op: Any, name: str) -> list[Any]:
        """Return the graphs of the functions that an attribute of ``op`` lists."""


class SourceNode:
    """``op`` with its ``inputs``; ``writer`` appends to the graph."""

    def __init__(self, op: Any, inputs: Sequence[Imported], writer: Writer) -> None:
        self.op, self.inputs, self.writer = op, list(inputs), writer

    def attr(self, name: str) -> Any:
        return self.op.get_attr(name)

    def numpy_of(self, name: str) -> Any:
        """Return the numpy type that the attribute ``name`` gives."""
        return self.attr(name).as_numpy_dtype

    # Inputs

    def value(self, index: int) -> Value:
        """Input ``index`` in TensorFlow's order of axes."""
        return self.of(self.inputs[index])

    @property
    def x(self) -> Value:
        return self.value(0)

    @property
    def y(self) -> Value:
        return self.value(1)

    def of(self, given: Imported | Value) -> Value:
        """``given`` as a tensor of the graph, in TensorFlow's order of axes."""
        if isinstance(given, Value):
            return given
        if isinstance(given, Known):
            return self.writer.constant(given.array)
        if isinstance(given, Held):
            return self.writer.plain(given)
        raise self.refuse(f"it takes a tensor, found {type(given).__name__}")

    def known(self, index: int) -> NDArray[Any]:
        """The value of input ``index``; raise UnsupportedError if it is computed on the device."""
        given = self.inputs[index]
        if not isinstance(given, Known):
            name = self.op.op_def.input_arg[min(index, len(self.op.op_def.input_arg) - 1)].name
            raise self.refuse(f"its input '{name}' must be known when the program is compiled, and is computed by it")
        return given.array

    def integers(self, index: int) -> list[int]:
        return [int(one) for one in self.known(index).reshape(-1)]

    def integer(self, index: int) -> int:
        return int(self.known(index).reshape(-1)[0])

    def shape(self, index: int) -> tuple[int, ...]:
        given = self.inputs[index]
        if isinstance(given, Known | Held | Variable):
            return tuple(given.shape)
        raise self.refuse("it takes a tensor, found a list")

    def held(self, index: int) -> Held:
        """Input ``index`` in the order of axes in which it is stored."""
        given = self.inputs[index]
        return given if isinstance(given, Held) else Held(self.of(given))

    def first(self, index: int) -> Value:
        """Input ``index``, a batch of images, as [N, C, H, W]."""
        return self.writer.first(self.held(index))

    def variable(self, index: int) -> Variable:
        given = self.inputs[index]
        if not isinstance(given, Variable):
            raise self.refuse("it takes a resource variable; set use_resource=True for its variable scope")
        return given

    def constant(self, value: Any, numpy: Any) -> Value:
        """A constant of the device's type for ``numpy``."""
        return self.writer.constant(np.asarray(value, device_dtype(numpy).numpy))

    # Several operands in the same order of axes

    def aligned(self, *indices: int) -> tuple[list[Value], bool]:
        """Inputs (by default all) reshaped such that they broadcast, and whether the result is channels first."""
        chosen = [self.inputs[index] for index in indices] if indices else self.inputs
        first = any(isinstance(one, Held) and one.channels_first for one in chosen)
        given = [self._without_repetition(one, chosen) for one in chosen]
        if not first:
            return [self.of(one) for one in given], False
        rank = max(len(one.shape) for one in given if isinstance(one, Known | Held))
        if rank > 4:
            return [self.of(one) for one in given], False
        return [self._image(one) for one in given], True

    def _without_repetition(self, given: Imported, chosen: Sequence[Imported]) -> Imported:
        """A constant of equal elements as a scalar, if that gives the same result."""
        if not isinstance(given, Known) or given.array.size < 2:
            return given
        others = [one.shape for one in chosen if one is not given and isinstance(one, Held)]
        whole = np.broadcast_shapes(*others, given.shape) if others else None
        if whole is None or np.broadcast_shapes(*others) != whole:
            return given
        number = given.array.reshape(-1)[:1]
        return Known(number.reshape(())) if (given.array == number).all() else given

    def _image(self, given: Imported) -> Value:
        """``given`` reshaped such that it broadcasts with [N, C, H, W]."""
        if isinstance(given, Held) and given.channels_first:
            return given.value
        value = self.of(given)
        shape = value.tensor.shape
        if len(shape) == 0:
            return value
        if len(shape) == 1:
            return value.shaped((*shape, 1, 1))
        wide = value.shaped((1,) * (4 - len(shape)) + shape)
        return wide.op("Transpose", perm=[0, 3, 1, 2])

    # Errors

    def refuse(self, text: str) -> EmulatorError:
        return refused(self.op, text)


def refused(op: Any, text: str) -> EmulatorError:
    """Return an error that names the op, its name scope and the user's line."""
    return UnsupportedError(f"{op.type} at {op.name}{location_of(op)}: {text}")


def location_of(op: Any) -> str:
    """Return ", file:line" of the user's code that made ``op``, or an empty string."""
    frames = [frame for frame in (op.traceback or ()) if not _is_library(frame.filename)]
    return f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_library(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<")) or any(
        part in filename for part in ("/site-packages/", "/lib/python3")
    )
