"""Weight preloading: the weights of the next execution phase are loaded while the current one computes.

    Compute a  on IPU 0                 preload
    RemoteLoad v, w  on IPU 1             RemoteLoad v, w  on IPU 1
    Compute b  on IPU 1         ->      while
    ...                                   Compute a  on IPU 0
                                        Compute b  on IPU 1

Phases alternate between IPUs, so the next phase begins at the first instruction of another IPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_UPDATE
from ipu_emu.program.instructions import Instruction, Leaf, Preload, RemoteLoad, of_type


def preloaded(graph: Graph, leaves: Sequence[Leaf]) -> Iterator[Instruction]:
    """Yield the ``leaves`` of a micro-batch; weights that do not change meanwhile are loaded one phase ahead."""
    changed = {op.inputs[0] for op in graph.ops if op.type == REMOTE_UPDATE and op.phase is not StepPhase.UPDATE}
    weights = {tensor.id for tensor in graph.with_role(Role.WEIGHT)} - changed
    runs = list(_runs(leaves))
    loads = [[], *(list(_loads(run, weights)) for run in runs[1:]), []]
    for run, own, ahead in zip(runs, loads[:-1], [after for _, after in pairwise(loads)], strict=True):
        body = tuple(leaf for leaf in run if leaf not in own)
        if ahead:
            yield Preload(tuple(ahead), body)
        else:
            yield from body


def _loads(run: Sequence[Leaf], weights: Collection[str]) -> Iterator[RemoteLoad]:
    yield from (leaf for leaf in of_type(run, RemoteLoad) if leaf.op.inputs[0] in weights)


def _runs(leaves: Sequence[Leaf]) -> Iterator[list[Leaf]]:
    """Split into runs of instructions on one IPU; an instruction on no IPU belongs to the run before it."""
    run: list[Leaf] = []
    last: int | None = None
    for leaf in leaves:
        ops = leaf.ops
        ipu = ops[0].place.ipu if ops else last
        if run and None not in (ipu, last) and ipu != last:
            yield run
            run = []
        run.append(leaf)
        last = ipu
    yield run
