"""Own ops: the ops that PopTorch adds to those of PyTorch."""

from __future__ import annotations

from ipu_emu.graph.dtype import INT32, UINT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, cast


def _print(call: Call) -> Value:
    return call.writer.emit("PrintTensor", [call.value("input")], call["attributes"])[0]


def _beam_search(call: Call) -> list[Value]:
    attributes = {"blank": int(call["blank"]), "beam_width": int(call["beam"]), "top_paths": int(call["top"])}
    inputs = [call.value("log_probs"), cast(call.value("lengths"), UINT32)]
    outputs = call.writer.emit("CtcBeamSearchDecoder", inputs, attributes, 3)
    return [outputs[0], cast(outputs[1], INT32), cast(outputs[2], INT32)]


RULES: dict[str, Rule] = {"ctc_beam_search": _beam_search, "print_tensor": _print}
