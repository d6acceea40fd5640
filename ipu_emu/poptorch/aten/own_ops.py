"""Own ops: the ops that PopTorch adds to those of PyTorch."""

from __future__ import annotations

from ipu_emu.graph.dtype import INT32, UINT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule


def _print(call: Call) -> Value:
    return call.writer.emit("PrintTensor", [call.value("input")], call["attributes"])[0]


def _beam_search(call: Call) -> list[Value]:
    attributes = {"blank": int(call["blank"]), "beam_width": int(call["beam"]), "top_paths": int(call["top"])}
    inputs = [call.value("log_probs"), call.value("lengths").cast(UINT32)]
    outputs = call.writer.emit("CtcBeamSearchDecoder", inputs, attributes, 3)
    return [outputs[0], outputs[1].cast(INT32), outputs[2].cast(INT32)]


RULES: dict[str, Rule] = {"ctc_beam_search": _beam_search, "print_tensor": _print}
