"""Function programs: the functions that a strategy runs, each compiled once for every signature of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops
from tensorflow.python.util import nest

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.tensorflow.run.configured_system import configured
from ipu_emu.tensorflow.run.feeds.element_source import GivenIterator
from ipu_emu.tensorflow.run.program import Program
from ipu_emu.tensorflow.run.variables import HostVariables
from ipu_emu.tensorflow.trace.devices import on_ipu
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace

#: The most programs of a function that are kept.
_MOST_KEPT = 8


class FunctionPrograms:
    """The programs of device ``device``."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._kept: WeakKeyDictionary[Any, list[_FunctionProgram]] = WeakKeyDictionary()

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run ``function(*args, **kwargs)`` on the device; return its results as tensors of the host."""
        arguments = (tuple(args), dict(kwargs))
        leaves = nest.flatten(arguments)
        programs = self._kept.setdefault(function, [])
        program = next((candidate for candidate in programs if candidate.fits(arguments, leaves)), None)
        if program is None:
            program = _FunctionProgram(function, arguments, leaves, self._device)
            if len(programs) >= _MOST_KEPT:
                programs.pop(0).close()
            programs.append(program)
        return program.run(leaves)


class _FunctionProgram:
    def __init__(self, function: Callable[..., Any], arguments: Any, leaves: list[Any], device: int) -> None:
        self._arguments, self._kinds = arguments, [_kind(leaf) for leaf in leaves]
        self._system = configured()
        self._names: dict[int, str] = {}
        self._iterators: dict[int, GivenIterator] = {}
        self._trace = trace = FunctionTrace(getattr(function, "__name__", "function"), device, owner=function)
        trace.loops = True
        with on_ipu(device):
            self._structure = trace.call(lambda: self._called(function, arguments, leaves), [])
        tensors = [result for result in self._results if result is not None]
        self._program = Program(trace, tensors, trace.effects())
        self._variables = HostVariables(trace)
        numbers = {name: number for number, name in self._names.items()}
        #: The values of the arguments that the trace depends on.
        self._settled = {numbers[name]: trace.argument_values[name] for name in trace.settled}

    def _called(self, function: Callable[..., Any], arguments: Any, leaves: list[Any]) -> Any:
        """Trace the function; return its result."""
        positional, named = nest.pack_sequence_as(arguments, self._stand_ins(leaves))
        result = function(*positional, **named)
        self._results = [self._result(leaf) for leaf in nest.flatten(result)]
        return nest.map_structure(lambda leaf: None, result)

    def _stand_ins(self, leaves: list[Any]) -> list[Any]:
        """The arguments with which the function is traced."""
        stand_ins: list[Any] = []
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, iterator_ops.OwnedIterator):
                stand_ins.append(self._iterators.setdefault(number, GivenIterator(leaf.element_spec)))
            elif _is_array(leaf):
                array = _array(leaf)
                tensor = array_ops.placeholder(getattr(leaf, "dtype", array.dtype), array.shape, f"argument_{number}")
                self._names[number] = tensor.name
                self._trace.argument_values[tensor.name] = array
                stand_ins.append(tensor)
            else:
                stand_ins.append(leaf)
        return stand_ins

    def _result(self, value: Any) -> Any:
        """Return a tensor of the trace, None for any other value."""
        if value is None or isinstance(value, ops.Operation):
            return None
        return array_ops.identity(value)

    def fits(self, arguments: Any, leaves: list[Any]) -> bool:
        """Whether other arguments, of the same kinds and in part of the same values, can use the program."""
        try:
            nest.assert_same_structure(self._arguments, arguments)
        except (TypeError, ValueError):
            return False
        if self._system != configured() or [_kind(leaf) for leaf in leaves] != self._kinds:
            return False
        return all(np.array_equal(_array(leaves[number]), value) for number, value in self._settled.items())

    def run(self, leaves: list[Any]) -> Any:
        for number, iterator in self._iterators.items():
            iterator.source.set(leaves[number])
        inputs = {name: _array(leaves[number]) for number, name in self._names.items()}
        values = iter(self._program.run_with(self._variables, inputs))
        with uninterrupted():
            outputs = [None if result is None else ops.convert_to_tensor(next(values)) for result in self._results]
        return nest.pack_sequence_as(self._structure, outputs)

    def close(self) -> None:
        self._program.close()


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, tensor_lib.Tensor | np.ndarray | np.generic)


def _array(leaf: Any) -> NDArray[Any]:
    return np.asarray(leaf.numpy() if isinstance(leaf, tensor_lib.Tensor) else leaf)


def _kind(leaf: Any) -> Any:
    """The property of an argument that a program depends on."""
    if _is_array(leaf):
        return ("tensor", str(leaf.dtype), tuple(leaf.shape))
    if isinstance(leaf, iterator_ops.OwnedIterator):
        return ("iterator", str(leaf.element_spec))
    if isinstance(leaf, bool | int | float | str | bytes | None):
        return (type(leaf), leaf)
    return ("object", id(leaf))
