"""Recurrent layers over whole sequences, [time, batch, features]; each step is unrolled."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import array_ops, array_ops_stack, init_ops, math_ops, variable_scope

from ipu_emu.session.options.without_effect import say_without_effect, without_effect

__all__ = ["PopnnGRU", "PopnnLSTM"]


#: Arguments of recurrent layers that only tune a real IPU.
_OPTIONS = frozenset({"available_memory_proportion_fwd", "available_memory_proportion_bwd", "options", "options_bwd"})


class _Recurrent:
    """Base of the layers: ``gates`` blocks of weights for input and state."""

    gates = 1

    @without_effect("partials_dtype")
    def __init__(
        self,
        num_units: int,
        dtype: Any = dtypes.float32,
        partials_dtype: Any = dtypes.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
        **options: Any,
    ) -> None:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise TypeError(f"{type(self).__name__} has no arguments {', '.join(sorted(unknown))}")
        say_without_effect(f"Arguments of {type(self).__name__}", options)
        known = {"tanh": math_ops.tanh, "sigmoid": math_ops.sigmoid}
        if activation not in known or recurrent_activation not in known:
            raise ValueError(f"The activations of a recurrent layer are {', '.join(known)}")
        self.num_units, self._dtype, self._name = num_units, dtype, name or type(self).__name__
        self._weights = weights_initializer or init_ops.glorot_uniform_initializer(seed)
        self._bias = bias_initializer or init_ops.zeros_initializer()
        self._activation, self._gate = known[activation], known[recurrent_activation]

    def _variables(self, features: int) -> tuple[Any, Any]:
        columns = self.gates * self.num_units
        with variable_scope.variable_scope(self._name, use_resource=True, reuse=variable_scope.AUTO_REUSE):
            rows = features + self.num_units
            kernel = variable_scope.get_variable("kernel", [rows, columns], self._dtype, self._weights)
            biases = variable_scope.get_variable("biases", [columns], self._dtype, self._bias)
        return kernel, biases

    def build(self, input_shape: Any) -> None:
        self._variables(int(input_shape[2]))

    def _zeros(self, inputs: Any) -> Any:
        return array_ops.zeros([int(inputs.shape[1]), self.num_units], self._dtype)


class PopnnLSTM(_Recurrent):
    """A long short-term memory; returns all outputs, and the last (cell, output)."""

    gates = 4

    def __call__(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        kernel, biases = self._variables(int(inputs.shape[2]))
        cell, output = initial_state or (self._zeros(inputs), self._zeros(inputs))
        outputs = []
        for step in range(int(inputs.shape[0])):
            joined = math_ops.matmul(array_ops.concat([inputs[step], output], 1), kernel) + biases
            i, g, f, o = array_ops.split(joined, 4, 1)
            cell = self._gate(f) * cell + self._gate(i) * self._activation(g)
            output = self._gate(o) * self._activation(cell)
            outputs.append(output)
        return array_ops_stack.stack(outputs), (cell, output)

    call = __call__


class PopnnGRU(_Recurrent):
    """A gated recurrent unit; returns all outputs, and the last one."""

    gates = 3

    def __call__(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        features = int(inputs.shape[2])
        kernel, biases = self._variables(features)
        output = self._zeros(inputs) if initial_state is None else initial_state
        (wr, wu, wc), (br, bu, bc) = array_ops.split(kernel, 3, 1), array_ops.split(biases, 3)
        outputs = []
        for step in range(int(inputs.shape[0])):
            joined = array_ops.concat([inputs[step], output], 1)
            reset = self._gate(math_ops.matmul(joined, wr) + br)
            update = self._gate(math_ops.matmul(joined, wu) + bu)
            candidate = array_ops.concat([inputs[step], reset * output], 1)
            new = self._activation(math_ops.matmul(candidate, wc) + bc)
            output = update * output + (1.0 - update) * new
            outputs.append(output)
        return array_ops_stack.stack(outputs), output

    call = __call__
