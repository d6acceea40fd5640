"""Recurrent layers as one op each instead of an op for every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.ops import Value, concatenated
from ipu_emu.poptorch.aten.call import Call, Rule
from ipu_emu.poptorch.aten.random import dropped

#: The order of gates in PyTorch's weights, by their places in ONNX's: i o f c, z r h.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


class _Layers:
    """The call of ``torch.lstm``, ``torch.gru`` or ``torch.rnn_...``."""

    def __init__(self, call: Call, type: str, activation: str = "") -> None:
        self.call, self.type, self.activation = call, type, activation
        self.biased, self.layers = bool(call["has_biases"]), int(call["num_layers"])
        self.directions = 2 if call["bidirectional"] else 1
        self.dropout = float(call["dropout"]) if call["train"] else 0.0

    def run(self) -> list[Value]:
        call = self.call
        x = call.value("input")
        if call["batch_first"]:
            x = x.op("Transpose", perm=[1, 0, 2])
        states = [call.of(tensor) for tensor in call["states"]]
        finals: list[list[Value]] = [[] for _ in states]
        count = 4 if self.biased else 2
        params = [call.of(tensor) for tensor in call["params"]]
        for layer in range(self.layers):
            outs = []
            for direction in range(self.directions):
                number = layer * self.directions + direction
                own = params[number * count : (number + 1) * count]
                starts = [call.sliced(state, [number], [number + 1], [0]) for state in states]
                out, *ends = self._layer(x, own, starts, direction == 1)
                outs.append(out)
                for final, end in zip(finals, ends, strict=True):
                    final.append(end)
            x = concatenated(outs, 2)
            if self.dropout and layer + 1 < self.layers:
                x = dropped(call, x, self.dropout)
        if call["batch_first"]:
            x = x.op("Transpose", perm=[1, 0, 2])
        return [x, *(concatenated(ends, 0) for ends in finals)]

    def _layer(self, x: Value, params: list[Value], starts: list[Value], reverse: bool) -> list[Value]:
        hidden = params[1].tensor.shape[1]
        w, r = (self._reordered(weights, hidden) for weights in params[:2])
        if self.biased:
            b = self._reordered(params[2], hidden).op("Concat", self._reordered(params[3], hidden), axis=1)
        else:
            gates = len(_GATES[self.type])
            b = self.call.constant(np.zeros((1, 2 * gates * hidden), x.tensor.dtype.numpy))
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": "reverse" if reverse else "forward"}
        if self.type == "GRU":
            attributes["linear_before_reset"] = 1
        if self.activation:
            attributes["activations"] = [self.activation]
        count = 3 if self.type == "LSTM" else 2
        results = self.call.writer.emit_in("", self.type, [x, w, r, b, None, *starts], attributes, count)
        steps, batch = x.tensor.shape[:2]
        return [results[0].shaped((steps, batch, hidden)), *results[1:]]

    def _reordered(self, value: Value, hidden: int) -> Value:
        """Gates in ONNX's order, with a leading axis of directions."""
        order = _GATES[self.type]
        if len(order) > 1:
            pieces = [self.call.sliced(value, [gate * hidden], [(gate + 1) * hidden], [0]) for gate in order]
            value = concatenated(pieces, 0)
        return value.shaped((1, *value.tensor.shape))


def _layers(type: str, activation: str = "") -> Rule:
    return lambda call: _Layers(call, type, activation).run()


RULES: dict[str, Rule] = {
    "gru": _layers("GRU"),
    "lstm": _layers("LSTM"),
    "rnn_relu": _layers("RNN", "Relu"),
    "rnn_tanh": _layers("RNN", "Tanh"),
}
