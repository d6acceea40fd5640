"""Report: what a session says of its program: operations, memory, a modelled cycle count, and the graph as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Tensor
from ipu_emu.popart.enums import Instrumentation
from ipu_emu.popart.options import SessionOptions
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import listing

__all__ = ["Cycles", "Report", "serialised"]

#: Floating-point operations and bytes of SRAM per tile and cycle (GC200: 62.5 TFLOP/s FLOAT, 47.5 TB/s).
_FLOPS_PER_TILE, _BYTES_PER_TILE = 32, 24


@dataclass(frozen=True)
class Report:
    """``memory`` in bytes by region of one replica; ``flops`` and ``bytes`` of one micro-batch on one replica."""

    program: str
    memory: Mapping[str, int]
    flops: int
    bytes: int
    replicas: int

    @classmethod
    def of(cls, executable: Executable, replicas: int) -> Report:
        cost = executable.cost()
        return cls(listing(executable.program), dict(executable.plan.sizes), cost.flops, cost.bytes, replicas)


class Cycles:
    """Cycle counts of a step. They are modelled, never measured, so every run of a program counts the same."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options

    def count(self, id: str, executable: Executable, tiles: int, ipus: int) -> int:
        """Cycles of all batches; ``id`` is "" for the outermost counter, inner_ipu_0, ... for the loops of an IPU."""
        if not self._options.instrumentWithHardwareCycleCounter:
            raise EmulatorError(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle "
                "count"
            )
        if id not in self._ids(ipus):
            raise EmulatorError(
                f"Invalid id for cycle counter, '{id}'. Make sure you have set "
                "SessionOption::hardwareInstrumentations correctly."
            )
        cost = executable.cost()
        one = cost.flops / (tiles * _FLOPS_PER_TILE) + cost.bytes / (tiles * _BYTES_PER_TILE)
        return max(1, round(one * executable.step.batches * executable.step.accumulation))

    def _ids(self, ipus: int) -> list[str]:
        asked = {Instrumentation(kind) for kind in self._options.hardwareInstrumentations}
        inner = [f"inner_ipu_{ipu}" for ipu in range(ipus)] if Instrumentation.Inner in asked else []
        return [*([""] if Instrumentation.Outer in asked else []), *inner]


def serialised(graph: Graph) -> str:
    """The ops of ``graph`` in order, as JSON."""
    ops = [
        {
            "type": op.type,
            "domain": op.domain or "ai.onnx",
            "version": op.version,
            "name": op.name,
            "phase": op.phase.value,
            "inputs": [_described(graph.tensors[id], index) for index, id in enumerate(op.inputs) if id],
            "outputs": [_described(graph.tensors[id], index) for index, id in enumerate(op.outputs) if id],
            "attributes": {key: _plain(value) for key, value in op.attributes.items()},
        }
        for op in graph.ops
    ]
    return json.dumps({"maingraph": ops})


def _described(tensor: Tensor, index: int) -> dict[str, Any]:
    shape = " ".join(str(size) for size in tensor.shape)
    return {"name": tensor.id, "index": str(index), "shape": f"[{shape}]", "type": tensor.dtype.name.lower()}


def _plain(value: Any) -> str:
    return np.array2string(value) if isinstance(value, np.ndarray) else str(value)
