"""Copies profile: the program that reads weights back to the host, as plain data with units in the keys.

IPUs have such a program in addition to that of a step: a list of transfers, each after a sync with the host. Tensors,
replicas and bytes are those that the engine copied; the times are modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.pricing import Pricing
from ipu_emu.program.memory_plan import ipu_of, is_off_chip
from ipu_emu.program.weight_copies import WeightCopy
from popdist_py.trace.records import VERSION

__all__ = ["CHECKPOINTING", "Place", "copies_profile", "place_of"]

#: The phase of an application in which weights are read back.
CHECKPOINTING = "checkpointing"


class Place(NamedTuple):
    """The IPU of a replica that owns a tensor, and the memory in which it is."""

    ipu: int
    memory: str


def place_of(step: ModelledStep, tensor: str) -> Place:
    """Who owns a tensor."""
    region = step.executable.plan.placements[tensor].region
    return Place(max(ipu_of(region), 0), "Streaming Memory" if is_off_chip(region) else "tile memory")


def copies_profile(step: ModelledStep, name: str, copies: Sequence[WeightCopy], offset: int) -> dict[str, Any]:
    """The profile of these copies, shown as ``name``; the first local replica is ``offset``."""
    pricing, tensors = Pricing(step.executable, step.machine), step.executable.graph.tensors
    rows = []
    for copy in copies:
        place = place_of(step, copy.tensor)
        sync, moving = pricing.host_sync(), copy.nbytes / step.machine.host_rate
        rows.append(
            {
                "tensor": copy.tensor,
                "role": tensors[copy.tensor].role.value,
                "replica": offset + copy.replica,
                "ipu": place.ipu,
                "memory": place.memory,
                "bytes": copy.nbytes,
                "modelled_seconds": sync + moving,
                "modelled_sync_seconds": sync,
            }
        )
    return {
        "version": VERSION,
        "name": name,
        "phase": CHECKPOINTING,
        "bytes": sum(copy.nbytes for copy in copies),
        "modelled_seconds": sum(float(row["modelled_seconds"]) for row in rows),
        "copies": rows,
    }
