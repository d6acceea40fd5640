"""Graph cuts: blocks begin where the fewest values cross, and layers where a single tensor crosses."""

from __future__ import annotations

import numpy as np

from ipu_emu.compiler.placement.graph_cuts import GraphCuts
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.predict.networks.block import BlockKind
from ipu_emu.predict.networks.graph_network import graph_network, op_blocks

LENGTH, WIDTH = 8, 32
MODEL = gpt2(
    batch=2, layers=2, width=WIDTH, heads=2, length=LENGTH, vocabulary=64, dtype=np.dtype("float32"), seed=None
)


def test_cuts_are_before_the_first_normalisation_of_residual_layers() -> None:
    graph = MODEL.graph
    cuts = GraphCuts(graph)
    clean = [start for start, is_clean in zip(cuts.starts, cuts.is_clean, strict=True) if is_clean and start]
    assert [graph.ops[start].type for start in clean] == ["GroupNormalization"] * 4 + ["MatMul"]  # the last: logits
    assert all(cuts.passed(cuts.block(start) - 1) == 2 * LENGTH * WIDTH for start in clean)
    assert cuts.passed(len(cuts.starts) - 1) == 0


def test_blocks_between_clean_cuts_make_a_layer() -> None:
    network = graph_network(MODEL.graph, "gpt2", 2)
    embedding, *blocks, head = network.blocks
    assert (embedding.kind, head.kind) == (BlockKind.EMBEDDING, BlockKind.HEAD)
    layers = list(dict.fromkeys(block.layer for block in blocks))
    assert len(layers) == 4
    for name in layers:
        *inner, last = (block for block in blocks if block.layer == name)
        assert last.output == LENGTH * WIDTH
        assert last.inside == 0
        assert all(block.output == 0 and block.inside > LENGTH * WIDTH for block in inner)


def test_every_op_on_inputs_is_in_a_block() -> None:
    names = [block.name for block in graph_network(MODEL.graph, "gpt2", 2).blocks]
    blocks = list(op_blocks(MODEL.graph).values())
    assert list(dict.fromkeys(blocks)) == names
    assert sorted(blocks, key=names.index) == blocks
