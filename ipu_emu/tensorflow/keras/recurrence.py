"""Recurrence: implements recurrent layers of Keras by the emulator's op, forward and backward, instead of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.python.framework import tensor_spec
from tensorflow.python.ops import array_ops, array_ops_stack, custom_gradient, math_ops
from tensorflow.python.util import nest
from tf_keras.src import activations
from tf_keras.src.engine import base_layer_utils

from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, current_trace

_TANH, _SIGMOID = (activations.tanh, math_ops.tanh), (activations.sigmoid, math_ops.sigmoid)
#: The cells of Keras' general loop that the emulator's op implements, and their activations: a function of a program
#: may have the same name.
_CELLS = {
    "SimpleRNNCell": ("RNN", {"activation": _TANH}),
    "GRUCell": ("GRU", {"activation": _TANH, "recurrent_activation": _SIGMOID}),
}


def recurrence(trace: FunctionTrace, cell: str, operands: Sequence[Any], **attributes: int) -> list[Any]:
    """Return the states of all steps [time, batch, units], and the last states.

    ``operands`` are the products of all inputs and weights [time, batch, gates units], the recurrent weights
    [gates units, units], their bias, and the first states.
    """
    functions = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[cell]
    settings = {
        "cell": cell, "reverse": 0, "activations": functions, "activation_alpha": [], "activation_beta": [],
        **attributes,
    }  # fmt: skip
    states = len(operands) - 3

    def run(*values: Any) -> Any:
        time, batch, units = values[0].shape[0], values[0].shape[1], values[1].shape[1]
        kind = values[0].dtype
        like = [tensor_spec.TensorSpec((time, batch, units), kind)]
        like += [tensor_spec.TensorSpec((batch, units), kind)] * states
        outputs = trace.several(values, "recurrence", settings, like)

        def gradient(*upstream: Any) -> Any:
            return trace.several([*values, *upstream, outputs[0]], "recurrence_gradient", (states, settings), values)

        return outputs, gradient

    return list(custom_gradient.custom_gradient(run)(*operands))


def lstm_on_device(before: Any, **arguments: Any) -> Any:
    """Patch Keras' function of an LSTM layer: without a mask it uses the emulator's op."""
    trace = current_trace()
    if trace is None or arguments["mask"] is not None or arguments["sequence_lengths"] is not None:
        return before(**arguments)

    def ordered(weights: Any) -> Any:
        i, f, c, o = array_ops.split(weights, 4, axis=-1)
        return array_ops.concat([i, o, f, c], -1)

    x, bias = _inputs(arguments), ordered(arguments["bias"])
    products = _products(x, ordered(arguments["kernel"])) + bias
    r = array_ops.transpose(ordered(arguments["recurrent_kernel"]))
    operands = [products, r, array_ops.zeros_like(bias), arguments["init_h"], arguments["init_c"]]
    y, h, c = recurrence(trace, "LSTM", operands)
    return (h, _outputs(arguments, y, h), h, c, None)


def gru_on_device(before: Any, **arguments: Any) -> Any:
    """Patch Keras' function of a GRU layer: without a mask it uses the emulator's op."""
    trace = current_trace()
    if trace is None or arguments["mask"] is not None or arguments["sequence_lengths"] is not None:
        return before(**arguments)
    first, second = array_ops_stack.unstack(arguments["bias"])
    products = _products(_inputs(arguments), arguments["kernel"]) + first
    r = array_ops.transpose(arguments["recurrent_kernel"])
    y, h = recurrence(trace, "GRU", [products, r, second, arguments["init_h"]], linear_before_reset=1)
    return (h, _outputs(arguments, y, h), h, None)


def rnn_on_device(before: Any, step: Any, inputs: Any, initial_states: Any, *rest: Any, **named: Any) -> Any:
    """Patch Keras' loop of recurrent layers: simple ones, and GRUs that reset before the product, use one op."""
    trace = current_trace()
    cell: Any = getattr(base_layer_utils.call_context().layer, "cell", None)
    plain = not rest and not any(named.get(name) for name in ("constants", "unroll", "zero_output_for_mask"))
    if trace is None or not plain or named.get("mask") is not None or not _is_on_device(cell, inputs):
        return before(step, inputs, initial_states, *rest, **named)
    options = {"inputs": inputs, "time_major": named.get("time_major", False)}
    options["go_backwards"] = named.get("go_backwards", False)
    products = _products(_inputs(options), cell.kernel)
    products = products if cell.bias is None else products + cell.bias
    r = array_ops.transpose(cell.recurrent_kernel)
    states = list(initial_states)
    y, h = recurrence(trace, _CELLS[type(cell).__name__][0], [products, r, array_ops.zeros_like(r[:, 0]), *states])
    options["return_sequences"] = named.get("return_all_outputs", True)
    return h, _outputs(options, y, h), [h]


def _is_on_device(cell: Any, inputs: Any) -> bool:
    """Whether the emulator's op implements the cell of a layer."""
    kind = type(cell)
    if not kind.__module__.startswith("tf_keras.") or kind.__name__ not in _CELLS or nest.is_nested(inputs):
        return False
    return (
        all(getattr(cell, name) in functions for name, functions in _CELLS[kind.__name__][1].items())
        and not getattr(cell, "reset_after", False)
        and not cell.dropout
        and not cell.recurrent_dropout
        and inputs.shape.is_fully_defined()
    )


def _inputs(arguments: Any) -> Any:
    """[time, batch, features], in the order of the steps."""
    x = arguments["inputs"] if arguments["time_major"] else array_ops.transpose(arguments["inputs"], [1, 0, 2])
    return array_ops.reverse(x, [0]) if arguments["go_backwards"] else x


def _products(x: Any, kernel: Any) -> Any:
    time, batch, features = x.shape
    flat = math_ops.matmul(array_ops.reshape(x, [time * batch, features]), kernel)
    return array_ops.reshape(flat, [time, batch, kernel.shape[1]])


def _outputs(arguments: Any, y: Any, last: Any) -> Any:
    axis = 0 if arguments["time_major"] else 1
    if not arguments["return_sequences"]:
        return array_ops.expand_dims(last, axis)
    return y if arguments["time_major"] else array_ops.transpose(y, [1, 0, 2])
