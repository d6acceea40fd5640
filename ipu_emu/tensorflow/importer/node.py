"""SourceNode: an op of TensorFlow with its imported inputs, the argument of an import rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, UnsupportedError
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.graph_writer import GraphWriter
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, Variable, device_dtype

_PACKAGE = str(Path(__file__).parents[2]) + "/"
#: Attributes that change no result in TensorFlow either; ``align`` places several diagonals, which are refused.
WITHOUT_EFFECT = frozenset({
    "align", "config", "config_proto", "executor_type", "grad_a", "grad_b", "grad_x", "grad_y",
    "incompatible_shape_error", "message", "num_elements", "output_shapes", "parallel_iterations", "sorted",
    "summarize", "use_cudnn_on_gpu", "use_locking", "validate_indices", "validate_shape",
})  # fmt: skip
#: What a rule returns: the values of the outputs, in order; one value for an op with one output.
Outputs = "Value | Held | Imported | Sequence[Value | Held | Imported | None] | None"
Rule = Callable[["SourceNode"], Any]


class SourceNode:
    """``op`` with its ``inputs``; ``writer`` appends to the graph, ``call`` imports the body of a function."""

    def __init__(
        self,
        op: Any,
        inputs: Sequence[Imported],
        writer: GraphWriter,
        call: Callable[[Any, Sequence[Imported]], list[Imported]],
    ) -> None:
        self.op, self.inputs, self.writer, self.call = op, list(inputs), writer, call
        self._read: set[str] = set()

    def attr(self, name: str) -> Any:
        self._read.add(name)
        return self.op.get_attr(name)

    def has(self, name: str) -> bool:
        return any(entry.name == name for entry in self.op.op_def.attr)

    def check_attributes(self) -> None:
        """Raise UnsupportedError for attributes off their defaults that have an effect and were not read."""
        entries = {entry.name: entry for entry in self.op.op_def.attr if entry.HasField("default_value")}
        left = entries.keys() - self._read - WITHOUT_EFFECT
        off = [name for name in left if self.op.node_def.attr[name] != entries[name].default_value]
        ignored = [name for name in off if entries[name].type != "type"]
        if ignored:
            values = ", ".join(f"{name}={self.op.get_attr(name)!r}" for name in sorted(ignored))
            raise self.refuse(f"{values} has no equivalent on IPUs; leave it at its default")

    def numpy_of(self, name: str) -> Any:
        """Return the numpy type that the attribute ``name`` gives."""
        return self.attr(name).as_numpy_dtype

    def function(self, name: str) -> Any:
        """Return the graph of the function that the attribute ``name`` names."""
        return self._function(self.op.get_attr(name).name)

    def functions(self, name: str) -> list[Any]:
        """Return the graphs of the functions that the attribute ``name`` lists."""
        return [self._function(function.name) for function in self.op.get_attr(name)]

    def _function(self, name: str) -> Any:
        graph = self.op.graph
        while graph is not None:
            body = getattr(graph._get_function(name), "graph", None)  # the graph of a function is not public
            if body is not None:
                return body
            graph = getattr(graph, "outer_graph", None)
        raise self.refuse(f"its function {name} was not found")

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

    def of(self, value: Imported | Value) -> Value:
        """``value`` as a tensor of the graph, in TensorFlow's order of axes."""
        if isinstance(value, Value):
            return value
        if isinstance(value, Known):
            return self.writer.constant(value.array)
        if isinstance(value, Held):
            return self.writer.plain(value)
        raise self.refuse(f"it takes a tensor, found {type(value).__name__}")

    def known(self, index: int) -> NDArray[Any]:
        """The value of input ``index``; raise UnsupportedError if it is computed on the device."""
        value = self.inputs[index]
        if not isinstance(value, Known):
            name = self.op.op_def.input_arg[min(index, len(self.op.op_def.input_arg) - 1)].name
            raise self.refuse(f"its input '{name}' must be known when the program is compiled, and is computed by it")
        return value.array

    def integers(self, index: int) -> list[int]:
        return [int(number) for number in self.known(index).reshape(-1)]

    def integer(self, index: int) -> int:
        return int(self.known(index).reshape(-1)[0])

    def shape(self, index: int) -> tuple[int, ...]:
        value = self.inputs[index]
        if isinstance(value, Known | Held | Variable):
            return tuple(value.shape)
        raise self.refuse("it takes a tensor, found a list")

    def held(self, index: int) -> Held:
        """Input ``index`` in the order of axes in which it is stored."""
        value = self.inputs[index]
        return value if isinstance(value, Held) else Held(self.of(value))

    def first(self, index: int) -> Value:
        """Input ``index``, a batch of images, as [N, C, H, W]."""
        return self.writer.first(self.held(index))

    def variable(self, index: int) -> Variable:
        value = self.inputs[index]
        if not isinstance(value, Variable):
            raise self.refuse("it takes a resource variable; set use_resource=True for its variable scope")
        return value

    def constant(self, value: Any, numpy: Any) -> Value:
        """A constant of the device's type for ``numpy``."""
        return self.writer.constant(np.asarray(value, device_dtype(numpy).numpy))

    # Several operands in the same order of axes

    def aligned(self, *indices: int) -> tuple[list[Value], bool]:
        """Inputs (by default all) reshaped such that they broadcast, and whether the result is channels first."""
        chosen = [self.inputs[index] for index in indices] if indices else self.inputs
        first = any(isinstance(value, Held) and value.channels_first for value in chosen)
        values = [self._without_repetition(value, chosen) for value in chosen]
        if not first:
            return [self.of(value) for value in values], False
        rank = max(len(value.shape) for value in values if isinstance(value, Known | Held))
        if rank > 4:
            return [self.of(value) for value in values], False
        return [self._image(value) for value in values], True

    def _without_repetition(self, value: Imported, chosen: Sequence[Imported]) -> Imported:
        """A constant of equal elements as a scalar, if that gives the same result."""
        if not isinstance(value, Known) or value.array.size < 2:
            return value
        others = [other.shape for other in chosen if other is not value and isinstance(other, Held)]
        shape = np.broadcast_shapes(*others, value.shape) if others else None
        if shape is None or np.broadcast_shapes(*others) != shape:
            return value
        number = value.array.reshape(-1)[:1]
        return Known(number.reshape(())) if (value.array == number).all() else value

    def _image(self, operand: Imported) -> Value:
        """``operand`` reshaped such that it broadcasts with [N, C, H, W]."""
        if isinstance(operand, Held) and operand.channels_first:
            return operand.value
        value = self.of(operand)
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
