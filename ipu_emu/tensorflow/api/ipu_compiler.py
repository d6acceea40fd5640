"""Compiler: ``compile`` turns a function into a program for the IPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops, control_flow_ops, gen_resource_variable_ops
from tensorflow.python.util import nest

from ipu_emu.tensorflow.run import session_runs
from ipu_emu.tensorflow.run.host_calls import host_call
from ipu_emu.tensorflow.run.program import Program
from ipu_emu.tensorflow.trace.devices import current_device
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, held_by, is_resource

__all__ = ["compile"]

_READS = ("ReadVariableOp", "ResourceGather", "VariableShape", "VarIsInitializedOp", "ResourceGatherNd")


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Compile ``computation(*inputs)`` for the IPU of the enclosing scope, or of the first scope inside.

    Return a list of its tensors, or an op if it returns none; they run the program. It is compiled at its first run,
    so the system may be configured later.
    """
    operands = [] if inputs is None else list(inputs)
    if not isinstance(inputs, list | tuple | type(None)):
        raise TypeError("inputs must be a list or a tuple of tensors")
    flat = [ops.convert_to_tensor(value) for value in nest.flatten(operands)]
    trace = FunctionTrace("ipu", current_device())

    def call(*tensors: Any) -> Any:
        return computation(*nest.pack_sequence_as(operands, list(tensors)))

    result = trace.call(call, flat)
    if trace.device is None:
        raise Exception(
            "ipu_compiler.compile must be called in the scope of an IPU: with ops.device('/device:IPU:0') or "
            "scopes.ipu_scope('/device:IPU:0')"
        )
    if type(result).__name__ in ("EstimatorSpec", "IPUEstimatorSpec"):
        raise ValueError("The computation returned an EstimatorSpec; return its tensors and ops")
    tensors, operations = trace.returned(result)
    program = Program(trace, tensors, operations)
    return _host_graph(program, trace, tensors)


def _host_graph(program: Program, trace: FunctionTrace, tensors: Sequence[Any]) -> Any:
    """Ops of the enclosing graph that read variables, run the program and assign variables."""
    captures = trace.captures()
    handles = [(outer, inner) for outer, inner in captures if is_resource(outer)]
    others = [(outer, inner) for outer, inner in captures if not is_resource(outer)]
    names = [trace.name_of(outer) for outer, _ in handles]
    kinds = [held_by(outer)[0] for outer, _ in handles]
    changed = [number for number, (_, inner) in enumerate(handles) if _may_change(inner)]
    reads = [
        gen_resource_variable_ops.read_variable_op(outer, kind)
        for (outer, _), kind in zip(handles, kinds, strict=True)
    ]
    run = _runner(program, [inner.name for _, inner in others], names, [names[n] for n in changed])
    types = [tensor.dtype for tensor in tensors] + [kinds[number] for number in changed]
    operands = [*(outer for outer, _ in others), *reads]
    if context.executing_eagerly():
        outputs = [ops.convert_to_tensor(value) for value in run(*(value.numpy() for value in operands))]
    else:
        session_runs.add(ops.get_default_graph(), program)
        outputs = _as_list(host_call(run, operands, types or [dtypes.bool], "ipu_program"))
    with ops.control_dependencies(outputs if not context.executing_eagerly() else []):
        assigns = [
            gen_resource_variable_ops.assign_variable_op(handles[number][0], outputs[len(tensors) + index])
            for index, number in enumerate(changed)
        ]
    after = [*(assign for assign in assigns if assign is not None), *(outputs if not types else [])]
    if not tensors:
        return control_flow_ops.group(*after, *outputs) if not context.executing_eagerly() else None
    for output, tensor in zip(outputs, tensors, strict=False):
        output.set_shape(tensor.shape)
    with ops.control_dependencies(after if not context.executing_eagerly() else []):
        return [array_ops.identity(output) for output in outputs[: len(tensors)]]


def _runner(
    program: Program, inputs: Sequence[str], variables: Sequence[str], changed: Sequence[str]
) -> Callable[..., list[Any]]:
    """Return the function that TensorFlow calls: of inputs and variables, to results and changed variables."""

    def run(*arrays: Any) -> list[Any]:
        values = iter(map(np.asarray, arrays))
        operands = dict(zip(inputs, values, strict=False))
        before = dict(zip(variables, values, strict=True))
        results, after = program.run(operands, before)
        assigned = [after.get(name, before[name]).astype(before[name].dtype, copy=False) for name in changed]
        return [*results, *assigned] or [np.asarray(True)]

    return run


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _may_change(handle: tensor_lib.Tensor) -> bool:
    """Whether an op of the trace may assign the variable."""
    return any(op.type not in _READS for op in handle.consumers())
