"""Strategy: the scope in which programs build their model for the IPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tensorflow.python.eager import context, def_function
from tensorflow.python.framework import errors, ops
from tensorflow.python.util import nest

from ipu_emu.errors import EmulatorError
from ipu_emu.session.options.without_effect import say_without_effect, without_effect
from ipu_emu.tensorflow.api import ipu_compiler
from ipu_emu.tensorflow.run.function_programs import FunctionPrograms
from ipu_emu.tensorflow.run.host_calls import translated
from ipu_emu.tensorflow.trace.devices import device_number, on_ipu
from ipu_emu.tensorflow.trace.strategies import in_strategy

__all__ = ["IPUStrategy", "IPUStrategyV1", "run_on_device"]


class IPUStrategyV1:
    """One IPU device; its replicas share every program."""

    @without_effect("cpu_device", "enable_dataset_iterators")
    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self._number = device_number(ipu_device) or 0
        self.enable_keras_extensions = enable_keras_extensions
        self._programs = FunctionPrograms(self._number)

    @property
    def device_ordinal(self) -> int:
        """The number of the device."""
        return self._number

    @contextmanager
    def scope(self) -> Iterator[IPUStrategyV1]:
        """Return the scope in which to build a model for the device."""
        with on_ipu(self._number), in_strategy(self):
            yield self

    @property
    def num_replicas_in_sync(self) -> int:
        """Programs of the strategy see one replica."""
        return 1

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run a tf.function on the device; in graph mode any function."""
        say_without_effect("Arguments of IPUStrategyV1.run", ["options"][: options is not None])
        eager = context.executing_eagerly()
        if eager and not isinstance(fn, def_function.Function):
            raise ValueError(
                "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` into a tf.function "
                "or consider calling strategy.run inside a tf.function."
            )
        values, named = list(args), dict(kwargs or {})
        _check_types([*values, *named.values()])
        if eager:
            result = run_on_device(self._programs, fn, values, named)
            _check_types(result)
            return result
        flat = nest.flatten((values, named))

        def call(*tensors: Any) -> Any:
            positional, by_name = nest.pack_sequence_as((values, named), list(tensors))
            body = getattr(fn, "python_function", fn)
            self._structure = body(*positional, **by_name)
            return self._structure

        with on_ipu(self._number):
            result = ipu_compiler.compile(call, [ops.convert_to_tensor(leaf) for leaf in flat])
        if not isinstance(result, list):
            return result
        _check_types(result)
        return nest.pack_sequence_as(self._structure, result)

    def experimental_run_v2(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
        """The name of ``run`` in early releases."""
        if context.executing_eagerly():
            raise RuntimeError("experimental_run_v2 was removed from TensorFlow 2; call run")
        return self.run(fn, args, kwargs)


def run_on_device(programs: FunctionPrograms, fn: Any, args: Any, kwargs: Any) -> Any:
    """Run a tf.function on the device; raise errors in TensorFlow's classes."""
    try:
        return programs.run(fn, args, kwargs)
    except (EmulatorError, errors.OpError) as error:
        raise translated(error) from None


def _check_types(values: Any) -> None:
    for value in nest.flatten(values):
        kind = getattr(value, "dtype", None)
        name = getattr(kind, "name", str(kind))
        if name == "float64" or isinstance(value, np.float64):
            raise TypeError(
                f"Unsupported data type for input {value!r}: float64 is not supported on the IPU; cast it to float32"
            )


IPUStrategy = IPUStrategyV1
