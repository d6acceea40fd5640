"""Graph placement: the IPU and pipeline stage of every op of a network, from the placement of its blocks.

    weights of an op      layer3/attention/q/weights  ->  block layer3/attention  ->  its IPU
    no weights            where the latest of its inputs is
    only weights          where its result is read, so that a transposed table stays with its reader

The stage is the number of the IPU. Logits whose table is that of the embedding are a last stage on its IPU.
"""

from __future__ import annotations

import re

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.models import Model
from ipu_emu.predict.job import Job
from ipu_emu.predict.model import placed
from ipu_emu.predict.networks import BlockKind
from ipu_emu.predict.placement import Placement

__all__ = ["op_places", "placed_blocks"]

_LAYER = re.compile(r"(layer\d+)/(norm1|attention|norm2|feed_forward)\b")
#: Blocks of weights whose name does not begin with that of their block; the first that the network has.
_OTHERS = {
    **dict.fromkeys(("tokens", "texts", "embeddings", "positions", "class"), ("embedding", "patches")),
    **dict.fromkeys(("norm", "classifier"), ("words", "classifier")),
    "heads": ("words",),
}


def placed_blocks(job: Job) -> Placement:
    """The blocks of each IPU: as ``job`` says, else balanced."""
    return placed(job).work.placement


def op_places(model: Model, blocks: Placement) -> dict[str, tuple[int, int]]:
    """(IPU, stage) of each op of ``model`` by its first output."""
    homes = {block.name: ipu for ipu, on_ipu in enumerate(blocks) for block in on_ipu}
    last = [block.name for on_ipu in blocks for block in on_ipu if block.kind is BlockKind.HEAD and block.tied]
    graph, places = model.graph, dict[str, tuple[int, int]]()
    computed: dict[str, tuple[int, int]] = {}
    for op in graph.ops:
        found = [_home(graph, id, homes, last, len(blocks)) for id in op.inputs if id and _is_weight(graph, id)]
        before = [computed[id] for id in op.inputs if id in computed]
        if before or any(graph.tensor(id).role is Role.INPUT for id in op.inputs if id):
            place = max([*found, *before], key=lambda each: each[1], default=(0, 0))
            computed |= dict.fromkeys(op.outputs, place)
            places[op.outputs[0]] = place
    for op in reversed(graph.ops):
        if op.outputs[0] not in places:
            places[op.outputs[0]] = _reader(graph, op, places)
    return places


def _is_weight(graph: Graph, id: str) -> bool:
    return graph.tensor(id).role is Role.WEIGHT


def _home(graph: Graph, weight: str, homes: dict[str, int], last: list[str], ipus: int) -> tuple[int, int]:
    block = _block(weight, homes)
    ipu = homes[block]
    return ipu, ipus if block in last else ipu


def _block(weight: str, homes: dict[str, int]) -> str:
    """The block that a weight belongs to."""
    layer = _LAYER.match(weight)
    if layer:
        return f"{layer[1]}/{'attention' if layer[2] in ('norm1', 'attention') else 'feed-forward'}"
    path = weight.removeprefix("heads/").split("/")
    for length in range(len(path), 0, -1):
        name = "/".join(path[:length])
        if name in homes:
            return name
    number = re.fullmatch(r"(?:weights|bias)(\d+)", weight)
    names = [f"layer{number[1]}"] if number else _OTHERS.get(weight.split("/")[0], ())
    for name in names:
        if name in homes:
            return name
    raise EmulatorError(f"--placement: the block of weight {weight} is not known; leave the option out")


def _reader(graph: Graph, op: Op, places: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """The place of the first op that reads a result of ``op``."""
    readers = (each.outputs[0] for each in graph.ops if any(id in op.outputs for id in each.inputs))
    return next((places[id] for id in readers if id in places), (0, 0))
