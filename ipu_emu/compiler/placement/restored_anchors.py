"""Restored anchors: activations as the backward stages of a pipeline get them back from their stash.

anchored: Restored___y        y -> stage 2's gradients    ->    Restored___y = Identity(y), in that backward stage
"""

from __future__ import annotations

from collections.abc import Iterable

from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import RESTORED
from ipu_emu.graph import Graph, Phase

__all__ = ["restore_anchored"]


def restore_anchored(graph: Graph, anchored: Iterable[str]) -> None:
    """Append a copy of each activation that is anchored as restored, in the first backward stage that reads it.

    Activations of the last forward stage are not stashed.
    """
    last = max((op.place.stage for op in graph.ops if op.phase is Phase.FORWARD), default=0)
    for id in anchored:
        base = id.removeprefix(RESTORED)
        if not id.startswith(RESTORED) or base not in graph.tensors or graph.tensor(base).role.is_variable:
            continue
        readers = [op for op in graph.ops if op.phase is Phase.BACKWARD and base in op.reads]
        places = [op.place for op in readers if op.place.stage < last]
        if places:
            OpWriter(graph, Phase.BACKWARD, places[0]).append("Identity", (base,), (id,))
