"""Early reductions: when parts of buckets are complete, and the bits of reductions during the backward pass."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine.replicas.local_replicas import REDUCE_EARLY, Replicas
from ipu_emu.program.early_reductions import EarlyReductions
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import leaves
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

WIDTH, LAYERS, BATCHES = 384, 4, 2  # a weight is 576 KiB: a part of its own


def model(
    anchored: str = "", *, settings: Any = None
) -> tuple[str, list[str], tuple[bytes, popart.DataFlow, str, Any]]:
    """A chain of layers; ``anchored`` is the prefix of a further anchor, of the last layer's weight."""
    random, builder = np.random.default_rng(0), popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(np.float32, [4, WIDTH]))
    y, weights = x, []
    for _ in range(LAYERS):
        value = (random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        arrays = [value] if settings is None else [np.stack([value, value]), settings]
        weights.append(builder.addInitializedInputTensor(*arrays))
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, weights[-1]])])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    flow = popart.DataFlow(BATCHES, [loss, *([anchored + weights[-1]] if anchored else [])])
    return x, weights, (builder.getModelProto(), flow, loss, popart.ConstSGD(0.05))


def compiled(anchored: str = "", *, settings: Any = None, **values: Any) -> Executable:
    """The executable of two replicas of the model."""
    opts = options(R=2, **values)
    *_, arguments = model(anchored, settings=settings)
    session = popart.TrainingSession(*arguments, device(opts), userOptions=opts)
    session.prepareDevice(loadEngine=False)
    return session.executable


@pytest.mark.parametrize("values", [{}, {"A": 3}], ids=["one micro-batch", "accumulation"])
@pytest.mark.parametrize("anchored", ["", "Gradient___"])
def test_a_part_starts_after_the_last_instruction_that_uses_it(values: dict[str, Any], anchored: str) -> None:
    executable = compiled(anchored, **values)
    early = EarlyReductions.of(executable.program, executable.plan)
    assert early is not None
    (region, parts), *others = early.parts.items()
    assert not others
    assert [parts[0].start, parts[-1].stop] == [0, executable.plan.sizes[region] // 4]
    assert all(first.stop == second.start for first, second in pairwise(parts))
    assert len(parts) == LAYERS
    begins = {part: number for number, own in early.begins.items() for part in own}
    for part in parts:
        uses = [number for number, leaf in enumerate(early.loop.body) if uses_part(executable, leaf, part)]
        assert begins[part] == uses[-1]
    first, last = min(begins.values()), max(begins.values())
    assert last - first > LAYERS  # the last layer's gradient is complete long before the first layer's


def uses_part(executable: Executable, instruction: Any, part: Any) -> bool:
    places = (
        executable.plan.placements[id]
        for leaf in leaves([instruction])
        for id in leaf.tensors
        if id in executable.plan.placements
    )
    return any(place.region == part.bucket and part.start <= place.offset // 4 < part.stop for place in places)


def test_whole_buckets_start_if_there_are_several() -> None:
    single = compiled()
    assert EarlyReductions.of(single.program, single.plan, joint=True) is None
    several = compiled(gclOptions={"maximum_reduce_many_buffer_size": str(4 * WIDTH * WIDTH)})
    early = EarlyReductions.of(several.program, several.plan, joint=True)
    assert early is not None
    assert [len(parts) for parts in early.parts.values()] == [1] * LAYERS


def test_groups_reduce_at_the_end() -> None:
    settings = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Consecutive, 1))
    executable = compiled(settings=settings)
    assert EarlyReductions.of(executable.program, executable.plan) is None


@pytest.mark.parametrize(
    ("counts", "factor", "limit", "expected"),
    [((1, 1), 1, 0, True), ((1, 1), 3, 0, True), ((2, 1), 2, 1 << 20, True), ((2, 1), 1, 0, False)],
)
def test_early_reductions_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], factor: int, limit: int, expected: bool
) -> None:
    """Instances with several replicas have whole buckets only, and then all instances do."""
    total = sum(counts)
    data = np.random.default_rng(1).standard_normal((BATCHES, factor, total, 4, WIDTH)).astype(np.float32)

    def trained(instance: Instance) -> tuple[bool, list[bytes]]:
        x, weights, arguments = model()
        opts = instance.configure(options(A=factor))
        if limit:
            opts.gclOptions = {"maximum_reduce_many_buffer_size": str(limit)}
        session = session_on(instance, popart.TrainingSession, *arguments, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        own = np.ascontiguousarray(data[:, :, instance.offset : instance.offset + instance.local])
        anchors = session.initAnchorArrays()
        for _ in range(2):
            session.run(popart.PyStepIO({x: own}, anchors))
        return session.engine.early is not None, [session.engine.read(id).tobytes() for id in weights]

    results = {}
    for early in ("0", "1"):
        monkeypatch.setenv(REDUCE_EARLY, early)
        results[early] = on_instances(counts, trained)
    assert [early for early, _ in results["0"] + results["1"]] == [False] * len(counts) + [expected] * len(counts)
    assert len({b"".join(values) for outcome in results.values() for _, values in outcome}) == 1


def test_reductions_are_early_between_hosts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REDUCE_EARLY, raising=False)
    early = on_instances((1, 1), lambda instance: instance.replicas().reduces_early)
    assert early == [False, False]
    for transport, expected in (("hosts", True), ("mpi", True), ("shared_memory", False)):
        between: Any = SimpleNamespace(transport=transport)
        replicas = Replicas(local=1, offset=0, total=2, connect=lambda group, between=between: between)
        assert replicas.reduces_early is expected
