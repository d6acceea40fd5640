"""Graph placement: the IPU and pipeline stage of every op of a network, from the placement of its blocks.

    op that reads weights of a named model    layer3/attention/q/weights  ->  block layer3/attention  ->  its IPU
    op of a named model without weights       the last stage of its inputs
    op of a model from a file                 as the compiler balances a graph; of --placement 3,7,7,7:
                                              the block between two cuts  ->  its IPU, or the last stage of its inputs
    op on weights only                        the IPU of its first reader, such as for a transposed table

The stage is the number of the IPU. Logits that use the table of the embedding are an extra last stage on its IPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from ipu_emu.compiler.placement.graph_balance import balanced_places
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.predict.job import Job
from ipu_emu.predict.model import placed
from ipu_emu.predict.networks import BlockKind
from ipu_emu.predict.networks.graph_network import op_blocks
from ipu_emu.predict.placement import Placement

_LAYER = re.compile(r"(layer\d+)/(norm1|attention|norm2|feed_forward)\b")
#: Blocks of weights whose name does not begin with the block's: the first of these that the network has.
_OTHERS = {
    **dict.fromkeys(("tokens", "texts", "embeddings", "positions", "class"), ("embedding", "patches")),
    **dict.fromkeys(("norm", "classifier"), ("words", "classifier")),
    "heads": ("words",),
}


def op_places(graph: Graph, job: Job) -> dict[str, tuple[int, int]]:
    """(IPU, stage) of each op by its first output, as in the prediction of ``job``."""
    blocks = placed(job).work.placement
    if job.own_network is not None and not job.layers:
        balanced = balanced_places(graph, (1.0,) * job.ipus, work=job.work)
        return {_key(op): place for op, place in zip(graph.ops, balanced, strict=True)}
    if not all(blocks):
        raise EmulatorError(f"{job.model} has no block for IPU {blocks.index(())}; use fewer IPUs")
    homes = _homes(blocks)
    block_of = _by_weights(graph, homes) if job.own_network is None else _by_cuts(graph)
    places, computed = dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
    for op in graph.ops:
        before = [computed[id] for id in op.inputs if id in computed]
        if before or any(graph.tensor(id).role is Role.INPUT for id in op.inputs if id):
            own = [homes[name] for name in block_of(op)]
            place = max([*own, *before], key=lambda home: home[1], default=(0, 0))
            computed |= dict.fromkeys(op.outputs, place)
            places[_key(op)] = place
    for op in reversed(graph.ops):
        if _key(op) not in places:
            places[_key(op)] = _reader(graph, op, places)
    return places


def _key(op: Op) -> str:
    return next(id for id in op.outputs if id)


def _homes(blocks: Placement) -> dict[str, tuple[int, int]]:
    """(IPU, stage) of each block by name."""
    last = len(blocks)
    return {
        block.name: (ipu, last if block.kind is BlockKind.HEAD and block.tied else ipu)
        for ipu, on_ipu in enumerate(blocks)
        for block in on_ipu
    }


def _by_weights(graph: Graph, names: Iterable[str]) -> Callable[[Op], list[str]]:
    """Return a function that gives the blocks of the weights that an op reads."""
    known = set(names)
    return lambda op: [_block(id, known) for id in op.inputs if id and graph.tensor(id).role is Role.WEIGHT]


def _by_cuts(graph: Graph) -> Callable[[Op], list[str]]:
    """Return a function that gives the block of an op."""
    blocks = op_blocks(graph)
    return lambda op: [blocks[id] for id in op.outputs if id in blocks]


def _block(weight: str, homes: Collection[str]) -> str:
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
    raise EmulatorError(f"--placement: the block of weight {weight} is not known; use --ipus 1")


def _reader(graph: Graph, op: Op, places: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """The place of the first op that reads a result of ``op``."""
    readers = (_key(reader) for reader in graph.ops if any(id in op.outputs for id in reader.inputs))
    return next((places[id] for id in readers if id in places), (0, 0))
