"""IPU optimiser: the base of optimisers that wrap another one, of TensorFlow 1 or of Keras."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import gradients_impl
from tensorflow.python.training import optimizer

from ipu_emu.tensorflow.trace.collectives import trace_of
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace
from ipu_emu.tensorflow.trace.strategies import dense

__all__ = ["IpuOptimizer", "apply_gradients", "compute_gradients", "is_keras", "totals"]


class IpuOptimizer(optimizer.Optimizer):  # type: ignore[misc]
    """Base of optimisers that wrap another one, of TensorFlow 1 or of Keras."""

    def __init__(self, opt: Any, name: str) -> None:
        super().__init__(False, name)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **options: Any) -> Any:
        """The gradients of the wrapped optimiser."""
        return compute_gradients(self._opt, loss, var_list, **options)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Update the variables by the wrapped optimiser."""
        return apply_gradients(self._opt, grads_and_vars, global_step, name)

    def get_slot(self, *arguments: Any, **named: Any) -> Any:
        """The state of a variable in the wrapped optimiser."""
        return self._opt.get_slot(*arguments, **named)

    def get_slot_names(self, *arguments: Any, **named: Any) -> Any:
        """The names of the states of the wrapped optimiser."""
        return self._opt.get_slot_names(*arguments, **named)

    def variables(self) -> Any:
        """The variables of the wrapped optimiser."""
        variables = self._opt.variables
        return variables() if callable(variables) else variables


def is_keras(opt: Any) -> bool:
    """Whether ``opt`` is an optimiser of Keras."""
    return not isinstance(opt, optimizer.Optimizer)


def compute_gradients(opt: Any, loss: Any, var_list: Any = None, **options: Any) -> Any:
    """Pairs of gradient and variable, for optimisers of either kind."""
    if not is_keras(opt):
        return opt.compute_gradients(loss, var_list, **options)
    variables = list(var_list) if var_list is not None else _trainable(trace_of("compute_gradients"))
    return list(zip(gradients_impl.gradients(loss, variables), variables, strict=True))


def _trainable(trace: FunctionTrace) -> list[Any]:
    """The trainable variables that the program uses."""
    from tensorflow.python.ops import variables as tf_variables

    used = {id(outer) for outer, _ in trace.captures()}
    return [variable for variable in tf_variables.trainable_variables() if id(variable.handle) in used]


def apply_gradients(opt: Any, pairs: Any, global_step: Any = None, name: str | None = None) -> Any:
    """Update the variables, by an optimiser of either kind; return an op."""
    if is_keras(opt):
        return opt.apply_gradients(pairs)
    return opt.apply_gradients(pairs, global_step=global_step, name=name)


def totals(trace: FunctionTrace, pairs: Any, dtype: Any = None) -> list[tuple[Any, Any]]:
    """Mark the gradients of a mini-batch; a weight update uses their sums, in ``dtype`` or that of each variable."""
    varies = callable(dtype) and not isinstance(dtype, type | dtypes.DType)
    return [
        (None if gradient is None else total(trace, gradient, dtype(variable) if varies else dtype), variable)
        for gradient, variable in pairs
    ]


def total(trace: FunctionTrace, gradient: Any, dtype: Any = None) -> Any:
    """The sum of ``gradient`` over mini-batches; a gradient that is such a sum is returned unchanged."""
    tensor = dense(gradient)
    marker = trace.markers.get(tensor.op.name)
    if marker is not None and marker.kind == "total":
        return tensor
    if dtype is None or dtypes.as_dtype(dtype) == tensor.dtype:
        return trace.mark(tensor, "total", None, "gradient")
    from tensorflow.python.ops import math_ops

    kind = dtypes.as_dtype(dtype)
    return trace.mark(math_ops.cast(tensor, kind), "total", kind.as_numpy_dtype, "gradient")
