"""Report: the operations and the memory of a program, and a graph as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.graph import Graph, Tensor
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import listing

__all__ = ["Report", "serialised"]


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
