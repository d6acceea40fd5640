"""Out of memory: whether a program fits its IPUs, and what would help where it does not.

The memory of an IPU is that of its tiles, beside its share of Streaming Memory; a Cpu or Sim device has no limit. A
remedy is priced by how much slower a step becomes, roughly; of those that suffice alone the cheapest come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.offloading import ActivationStorage
from ipu_emu.errors import OutOfMemoryError
from ipu_emu.graph import Role, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.hardware import GENERATIONS
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.types.enums import DeviceType
from ipu_emu.program.executable import Executable
from ipu_emu.program.footprint import Footprint, footprints
from ipu_emu.program.memory_plan import ipu_of, is_off_chip

__all__ = ["Remedy", "cheapest", "check_memory", "memory_of", "remedies", "streaming_memory_of"]

_LIMITED = (DeviceType.Ipu, DeviceType.OfflineIpu, DeviceType.IpuModel)
_MOST_REMEDIES = 3
#: What saves less of what has to go is not worth a line.
_LEAST = 0.01

#: Remedies that are compiled to see what they save: text, arguments of ``lower``, price.
_AGAIN: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("set autoRecomputation = RecomputationType.Standard", {"recomputation": Recomputation.STANDARD}, 0.3),
    (
        "keep activations off chip: activationTensorLocationSettings with TensorStorage.OffChip",
        {"activations": ActivationStorage(smallest=2)},
        0.5,
    ),
)


@dataclass(frozen=True)
class Remedy:
    """``saved`` bytes on the IPU that needs most; ``price`` in shares of the time of a step."""

    what: str
    saved: int
    price: float
    suffices: bool = False

    def __str__(self) -> str:
        return f"{self.what} (saves about {_mega(self.saved)}{', which suffices' if self.suffices else ''})"


def memory_of(device: DeviceInfo) -> int | None:
    """Bytes of an IPU of ``device``; None where there is no limit."""
    generation = GENERATIONS.get(device.ipuVersion)
    if device.type not in _LIMITED or generation is None:
        return None
    return device.tilesPerIPU * generation.tile_memory


def streaming_memory_of(device: DeviceInfo) -> int | None:
    """Bytes of Streaming Memory of all IPUs of ``device``; None where there is no limit."""
    generation = GENERATIONS.get(device.ipuVersion)
    if device.type not in _LIMITED or generation is None:
        return None
    return device.numIpus * generation.streaming_memory


def check_memory(
    executable: Executable,
    device: DeviceInfo,
    *,
    replicas: int,
    compiled: Callable[..., Executable],
    beside: Executable | None = None,
) -> None:
    """Raise OutOfMemoryError where an IPU would need more than it has.

    ``compiled`` compiles the model again, with other arguments of ``lower``; ``beside`` is a second program of the
    same variables.
    """
    _check_streaming_memory(executable, device)
    limit = memory_of(device)
    needs = footprints(executable, device.tilesPerIPU)
    if beside is not None:
        others = footprints(beside, device.tilesPerIPU)
        needs = [one.beside(other) for one, other in zip_longest(needs, others, fillvalue=Footprint())]
    worst = max(range(len(needs)), key=lambda ipu: needs[ipu].total)
    if limit is None or needs[worst].total <= limit:
        return
    wanted = needs[worst].total - limit
    advice = remedies(executable, device, worst, replicas=replicas, compiled=compiled)
    lines = "\n".join(f"  {remedy}" for remedy in cheapest(advice, wanted))
    raise OutOfMemoryError(
        f"Out of memory: IPU {worst} needs {_mega(needs[worst].total)} and has {_mega(limit)}; {_mega(wanted)} have "
        f"to go. Memory by IPU in MB:\n{_table(needs, limit)}\nRemedies:\n{lines}"
    )


def _check_streaming_memory(executable: Executable, device: DeviceInfo) -> None:
    plan, generation = executable.plan, GENERATIONS.get(device.ipuVersion)
    needs = [plan.streaming_bytes_of(ipu) for ipu in range(plan.ipus)]
    if device.type not in _LIMITED or generation is None or max(needs) <= generation.streaming_memory:
        return
    if not generation.streaming_memory:
        raise OutOfMemoryError(
            "Offloading has been enabled, however the current configuration of the IPU devices does not support "
            f"remote memory: {generation.name} has no Streaming Memory. Keep all on chip, or use another system"
        )
    raise OutOfMemoryError(
        f"Out of memory: IPU {needs.index(max(needs))} needs {_mega(max(needs))} of Streaming Memory and has "
        f"{_mega(generation.streaming_memory)}; keep more on chip, buffer fewer micro-batches of inputs "
        "(defaultBufferingDepth), or spread the model over more IPUs"
    )


def remedies(
    executable: Executable,
    device: DeviceInfo,
    ipu: int,
    *,
    replicas: int,
    compiled: Callable[..., Executable],
) -> Iterator[Remedy]:
    """What would save memory on ``ipu``."""
    need = footprints(executable, device.tilesPerIPU)[ipu]
    remote = GENERATIONS[device.ipuVersion].streaming_memory > 0
    yield from _of_states(executable, ipu, replicas, remote)
    yield from _of_activations(need, executable.plan.ipus)
    there = [tensor for tensor in _on(executable, ipu) if tensor.role is not Role.STATE]
    halves = sum(t.nbytes // 2 for t in there if t.dtype is FLOAT) * need.data
    whole = sum(t.nbytes for t in _on(executable, ipu))
    yield Remedy("use FLOAT16 in the place of FLOAT in the model", halves // max(whole, 1), 0.05)
    if need.transient + need.stashes + need.fifos:
        for what, others, price in _AGAIN[: 1 + remote]:
            saved = need.total - footprints(compiled(**others), device.tilesPerIPU)[ipu].total
            yield Remedy(what, saved, price)


def cheapest(found: Iterable[Remedy], wanted: int) -> list[Remedy]:
    """At most three: the cheapest that save ``wanted`` bytes alone, then those that save most."""
    useful = [replace(one, suffices=one.saved >= wanted) for one in found if one.saved > _LEAST * wanted]
    useful.sort(key=lambda remedy: (not remedy.suffices, remedy.price if remedy.suffices else -remedy.saved))
    return useful[:_MOST_REMEDIES]


def _of_states(executable: Executable, ipu: int, replicas: int, remote: bool) -> Iterator[Remedy]:
    states = sum(t.nbytes for t in _on(executable, ipu) if t.role is Role.STATE)
    shared = sum(t.nbytes for t in _on(executable, ipu) if t.role is Role.STATE and t.shards is None)
    place = "optimizerStateTensorLocationSettings"
    if remote:
        yield Remedy(f"put the optimiser state off chip: {place} with TensorStorage.OffChip", states, 0.1)
    yield Remedy(
        f"share the optimiser state between the {replicas} replicas: {place} with ReplicatedTensorSharding.On",
        shared - shared // replicas,
        0.02,
    )


def _of_activations(need: Footprint, ipus: int) -> Iterator[Remedy]:
    moving = need.transient + need.stashes + need.fifos
    yield Remedy("halve the micro-batch and double the accumulation factor", moving // 2, 0.15)
    yield Remedy(f"spread each replica over {2 * ipus} IPUs with virtual graphs", need.data // 2, 1.0)


def _on(executable: Executable, ipu: int) -> Iterator[Tensor]:
    for placement in executable.plan.placements.values():
        there = ipu_of(placement.region) == ipu and not is_off_chip(placement.region)
        if there and placement.tensor.id not in executable.plan.views:
            yield placement.tensor


def _table(needs: Sequence[Footprint], limit: int) -> str:
    names = [*needs[0].parts(), "total", "free"]
    lines = ["".join(f"{name:>11}" for name in ("IPU", *names))]
    for ipu, need in enumerate(needs):
        values = [*need.parts().values(), need.total, limit - need.total]
        lines.append(f"{ipu:>11}" + "".join(f"{value / 1e6:>11,.1f}" for value in values))
    return "\n".join(lines)


def _mega(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
