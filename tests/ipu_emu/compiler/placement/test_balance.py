"""Balance: the cut of a chain is the best of all cuts, which are tried one after the other."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.compiler.placement.balance import Chain, balance
from ipu_emu.compiler.placement.graph_balance import SharedWeights, TooFewOpsError, balanced_places
from ipu_emu.graph import Graph, Role
from ipu_emu.models import named
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.onnx.read import read


def costs(chain: Chain, cuts: tuple[int, ...], ratios: tuple[float, ...], limit: float) -> tuple[float, float, float]:
    """Bytes beyond the limit, the slowest part, and the sum of squares of bytes."""
    ends = [0, *cuts, len(chain.seconds)]
    copies = [0.0, *chain.copies[1:], 0.0]
    seconds, nbytes = [], []
    for part, (first, end) in enumerate(pairwise(ends)):
        longer, more = chain.fixed if part == chain.home else (0.0, 0.0)
        seconds.append((sum(chain.seconds[first:end]) + longer + copies[first] + copies[end]) / ratios[part])
        nbytes.append(sum(chain.nbytes[first:end]) + more)
    over = max(nbytes) if max(nbytes) > limit else 0.0
    return over, round(max(seconds), 6), sum(size**2 for size in nbytes)


@pytest.mark.parametrize("limit", [inf, 30.0, 0.0], ids=["any memory", "some memory", "no memory"])
@pytest.mark.parametrize("ratios", [(1.0,), (1.0, 1.0), (3.0, 1.0), (1.0, 1.0, 1.0), (1.0, 2.0, 1.0, 1.0)])
@pytest.mark.parametrize("seed", range(6))
def test_the_cut_is_the_best_of_all(ratios: tuple[float, ...], limit: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    seconds, nbytes, copies = (draw.integers(*bounds, 9).astype(float) for bounds in ((1, 9), (0, 20), (0, 4)))
    chain = Chain(seconds, nbytes, copies, (3.0, 5.0), home=len(ratios) // 2, enough=seed % 2 == 1)
    parts = balance(chain, ratios, limit)
    assert parts == sorted(parts)
    chosen = tuple(sum(part < bound for part in parts) for bound in range(1, len(ratios)))
    every = [0, *range(1, 9), 9] if chain.enough else range(1, 9)
    tried = [
        cuts
        for cuts in combinations(sorted([*every, *every]), len(ratios) - 1)
        for sizes in [[end - first for first, end in pairwise([0, *cuts, 9])]]
        if all(size or (chain.enough and part == chain.home) for part, size in enumerate(sizes))
    ]
    assert costs(chain, chosen, ratios, limit) == min(costs(chain, cuts, ratios, limit) for cuts in tried)


def test_units_that_are_too_few_are_on_the_first_parts() -> None:
    assert balance(Chain([1.0, 2.0], [0.0, 0.0], [0.0, 0.0]), (1.0,) * 4) == [0, 1]


def test_a_graph_with_fewer_ops_than_ipus_is_refused() -> None:
    with pytest.raises(TooFewOpsError) as error:
        balanced_places(Graph(), (1.0, 1.0))
    assert error.value.args[0] == (
        "There are fewer subgraphs (0) than available shards (2). Use fewer IPUs, or a larger model"
    )


@pytest.mark.parametrize("ipus", [2, 3, 5, 16])
@pytest.mark.parametrize("name", ["resnet8", "transformer", "bert-base"])
def test_stages_read_results_of_earlier_stages_and_weights_of_one_ipu(name: str, ipus: int) -> None:
    graph = named(name).graph
    places = balanced_places(graph, (1.0,) * ipus, shared=SharedWeights.HOME)
    producer = {id: place for op, place in zip(graph.ops, places, strict=True) for id in op.outputs}
    readers: dict[str, set[int]] = {}
    for op, (ipu, stage) in zip(graph.ops, places, strict=True):
        assert all(producer[id][1] <= stage for id in op.inputs if id in producer)
        for id in op.inputs:
            readers.setdefault(id, set()).add(ipu)
    assert {ipu for ipu, _ in places} == set(range(ipus))
    assert all(len(readers[tensor.id]) == 1 for tensor in graph.with_role(Role.WEIGHT) if tensor.id in readers)


@pytest.mark.parametrize("shared", SharedWeights)
def test_logits_of_a_tied_table(shared: SharedWeights) -> None:
    graph = gpt2(batch=1, layers=4, width=32, heads=2, length=8, vocabulary=64, seed=None).graph
    places = balanced_places(graph, (1.0, 1.0), shared=shared)
    readers = [place for op, place in zip(graph.ops, places, strict=True) if "tokens" in op.inputs]
    first, last = readers[0], readers[-1]
    assert first == (0, 0)
    assert last == {SharedWeights.COPIED: (1, 1), SharedWeights.TOGETHER: (0, 0)}.get(shared, (0, 2))


def test_a_weight_of_all_layers_is_copied_or_read_in_further_stages() -> None:
    builder = popart.Builder()
    h = builder.addInputTensor("FLOAT", [4, 4])
    table = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), "table")
    for layer in range(6):
        weight = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), f"weight{layer}")
        h = builder.aiOnnx.add([builder.aiOnnx.matmul([h, weight]), table])
    graph = read(builder.getModelProto()).graph
    for shared, ipus, stages in ((SharedWeights.LOGITS_HOME, {0, 1}, 2), (SharedWeights.HOME, {0}, 3)):
        places = balanced_places(graph, (1.0, 1.0), shared=shared)
        readers = {ipu for op, (ipu, _) in zip(graph.ops, places, strict=True) if "table" in op.inputs}
        assert (readers, len({stage for _, stage in places})) == (ipus, stages)
