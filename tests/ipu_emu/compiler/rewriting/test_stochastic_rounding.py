"""Stochastic rounding and its random numbers: unbiased, a function of seed, replica, step and micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.ops.random.stochastic_rounding import round_stochastically
from tests.ipu_emu.helpers.sessions import device, options, train, variables
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

#: Numbers between two halves, in every part of the range, and exact ones.
VALUES = np.array([1.0003, -1.0007, 3e-7, -6.1e-5, 1000.3, 0.1, 2.0, 0.0, 65503.0, 5.97e-8], np.float32)


def neighbours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The halves below and above (equal where x is one)."""
    near = x.astype(np.float16)
    down = np.where(near.astype(np.float32) <= x, near, np.nextafter(near, np.float16(-np.inf)))
    with np.errstate(over="ignore"):
        up = np.where(near.astype(np.float32) >= x, near, np.nextafter(near, np.float16(np.inf)))
    return down, up


def test_a_value_becomes_one_of_its_neighbours_in_proportion() -> None:
    count = 20_000
    x = np.repeat(VALUES, count)
    out = np.zeros(x.size, np.uint16)
    round_stochastically(x, np.arange(4, dtype=np.uint64), 7, out)
    rounded = out.view(np.float16).reshape(len(VALUES), count)
    down, up = neighbours(VALUES)
    for i, value in enumerate(VALUES):
        assert set(np.unique(rounded[i])) <= {down[i], up[i]}
        if down[i] == up[i]:
            assert (rounded[i] == value).all()
            continue
        share = (float(value) - float(down[i])) / (float(up[i]) - float(down[i]))
        # five standard deviations of a binomial distribution
        assert abs((rounded[i] == up[i]).mean() - share) < 5 * np.sqrt(share * (1 - share) / count) + 1e-9


def test_infinities_and_nan_are_kept() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 7e4, -7e4], np.float32)
    out = np.zeros(5, np.uint16)
    round_stochastically(x, np.zeros(4, np.uint64), 0, out)
    np.testing.assert_array_equal(out.view(np.float16), [np.inf, -np.inf, np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("part", range(4))
def test_every_part_of_the_key_counts(part: int) -> None:
    x, key = np.full(1000, 1.0003, np.float32), np.array([1, 2, 3, 4], np.uint64)
    bits, again, other = (np.zeros(1000, np.uint16) for _ in range(3))
    round_stochastically(x, key, 5, bits)
    round_stochastically(x, key, 5, again)
    key[part] += np.uint64(1)
    round_stochastically(x, key, 5, other)
    np.testing.assert_array_equal(bits, again)
    assert (bits != other).mean() > 0.1


class Half:
    """A small half-precision network."""

    bps, factor, replicas = 2, 2, 4
    data = np.random.default_rng(0).standard_normal((bps, factor, replicas, 4, 5)).astype(np.float16)

    def __init__(self, optimizer: Any = None) -> None:
        random = np.random.default_rng(1)
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor("FLOAT16", [4, 5])
        shapes = ((5, 7), (7,), (7, 3))
        self.w = [
            builder.addInitializedInputTensor((random.standard_normal(s) / 2).astype(np.float16)) for s in shapes
        ]
        hidden = builder.aiOnnx.tanh([builder.aiOnnx.gemm([self.x, self.w[0], self.w[1]])])
        self.loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([hidden, self.w[2]])], 1.0)
        self.optimizer = optimizer or popart.SGD(
            {"defaultLearningRate": (1e-3, True), "defaultMomentum": (0.9, True)}
        )

    @property
    def model(self) -> tuple[Any, ...]:
        return self.builder.getModelProto(), popart.DataFlow(self.bps, [self.loss]), self.loss, self.optimizer

    def session(self, **values: Any) -> Any:
        opts = options(R=self.replicas, A=self.factor, enableStochasticRounding=True, **values)
        return self.ready(popart.TrainingSession(*self.model, device(opts), userOptions=opts))

    def ready(self, session: Any, seed: int = 3) -> Any:
        session.prepareDevice()
        session.setRandomSeed(seed)
        session.weightsFromHost()
        return session

    def weights(self, session: Any, offset: int = 0, local: int = 4, steps: int = 2) -> list[np.ndarray]:
        data = np.ascontiguousarray(self.data[:, :, offset : offset + local])
        for _ in range(steps):
            session.run(popart.PyStepIO({self.x: data}, session.initAnchorArrays()))
        session.weightsToHost()
        return [session.weightsByName()[id] for id in self.w]


@pytest.mark.parametrize("optimizer", [None, popart.Adam({"defaultLearningRate": (1e-3, True)})])
def test_replicas_remain_equal_and_layouts_agree(optimizer: Any) -> None:
    half = Half(optimizer)
    session = half.session()
    alone = half.weights(session)
    for replica in range(1, 4):
        for id in half.w:
            np.testing.assert_array_equal(session.engine.read(id, replica), session.engine.read(id, 0))

    def work(instance: Instance) -> list[np.ndarray]:
        opts = instance.configure(options(A=half.factor, enableStochasticRounding=True))
        session = half.ready(session_on(instance, popart.TrainingSession, *half.model, userOptions=opts))
        return half.weights(session, instance.offset, instance.local)

    for counts in ((2, 2), (1, 3)):
        for result in on_instances(counts, work):
            for weight, other in zip(result, alone, strict=True):
                np.testing.assert_array_equal(weight, other)


def test_small_updates_are_not_lost() -> None:
    """Updates of a tenth of the distance between halves add up on average; rounding to nearest loses all of them."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(4000, np.float16))
    loss = builder.aiGraphcore.identityloss([w], popart.ReductionType.Sum)
    means = {}
    for stochastic in (False, True):
        opts = options(enableStochasticRounding=stochastic)
        flow = popart.DataFlow(50, [loss])
        session = popart.TrainingSession(
            builder.getModelProto(), flow, loss, popart.ConstSGD(2.0**-11 / 10), device(opts), userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        session.run(popart.PyStepIO({}, session.initAnchorArrays()))
        session.weightsToHost()
        means[stochastic] = session.weightsByName()[w].astype(np.float64).mean()
    assert means[False] == 1.0
    assert abs(means[True] - (1 - 50 * 2.0**-11 / 10)) < 3e-5


@pytest.mark.parametrize(("running", "first", "others"), [(False, 1.0, 2.0**-11 / 8), (True, 1.0, 1 + 2.0**-10)])
def test_small_gradients_of_micro_batches_are_not_lost(running: bool, first: float, others: float) -> None:
    """Sums and running means are right on average; with rounding to nearest they stay at the first value."""
    count = 32
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4000])
    w = builder.addInitializedInputTensor(np.ones(4000, np.float16))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    accumulator = popart.reservedAccumPrefix() + w
    data = np.full((count, 4000), others, np.float16)
    data[0] = first
    sums = {}
    for stochastic in (False, True):
        opts = options(A=count, enableStochasticRounding=stochastic)
        if running:
            opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
            opts.meanAccumulationAndReplicationReductionStrategy = popart.MeanReductionStrategy.Running
        flow = popart.DataFlow(1, {accumulator: popart.AnchorReturnType("Final")})
        session = train(builder, flow, loss, popart.ConstSGD(1e-3), opts)
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: data}, anchors))
        sums[stochastic] = anchors[accumulator].astype(np.float64)
    exact = data[:, 0].astype(np.float64).mean() if running else data[:, 0].astype(np.float64).sum()
    assert set(sums[False]) == {1.0}
    assert exact - 1 > 4e-4
    assert abs(sums[True].mean() - exact) < 1e-4


def test_with_synthetic_data_there_is_no_state_of_random_numbers() -> None:
    mode = popart.SyntheticDataMode.Zeros
    session = Half().session(enableLoadAndOffloadRNGState=True, syntheticDataMode=mode)
    assert session.getRNGState() == []
    session.setRNGState([])


def test_the_state_of_random_numbers_can_be_kept() -> None:
    half = Half()
    session = half.session(enableLoadAndOffloadRNGState=True)
    assert session.getRandomSeed() == 3
    first = half.weights(session, steps=1)
    state = session.getRNGState()
    assert state == [3, 0, 1, 0]
    after_one = variables(session)
    then = half.weights(session, steps=1)
    for restored in (True, False):
        again = half.session(enableLoadAndOffloadRNGState=True)
        again.writeWeights(popart.PyWeightsIO(after_one))
        if restored:
            again.setRNGState(state)
        pairs = zip(half.weights(again, steps=1), then, strict=True)
        assert all(np.array_equal(state, other) for state, other in pairs) is restored
    assert len(first) == 3


def test_errors_of_the_state() -> None:
    session = Half().session()
    rest = "the RNG state, but the session option enableLoadAndOffloadRNGState must be set to True."
    for verb, call in (("get", session.getRNGState), ("set", lambda: session.setRNGState([0, 0, 0, 0]))):
        with pytest.raises(popart.popart_exception) as error:
            call()
        assert error.value.args[0] == f"Trying to {verb} {rest}"
    with pytest.raises(popart.popart_exception, match="of 2 values was given; getRNGState gives 4"):
        Half().session(enableLoadAndOffloadRNGState=True).setRNGState([1, 2])


@pytest.mark.parametrize("off_chip", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_small_gradients_of_replicas_are_not_lost(running: bool, off_chip: bool) -> None:
    """Three replicas add an eighth of the distance between halves each; to nearest, they add nothing."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4000])
    w = builder.addInitializedInputTensor(np.zeros(4000, np.float16))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    data = np.full((2, 4, 4000), 2.0**-13, np.float16)
    data[:, 0] = 1.0
    updates = {}
    for stochastic in (False, True):
        opts = options(R=4, A=2, enableStochasticRounding=stochastic)
        if running:
            opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
            opts.meanAccumulationAndReplicationReductionStrategy = popart.MeanReductionStrategy.Running
        if off_chip:
            opts.accumulatorTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
        session = train(builder, popart.DataFlow(1, []), loss, popart.ConstSGD(1.0), opts)
        session.run(popart.PyStepIO({x: data}, {}))
        session.weightsToHost()
        updates[stochastic] = -session.weightsByName()[w].astype(np.float64)
        for replica in range(1, 4):
            np.testing.assert_array_equal(session.engine.read(w, replica), -updates[stochastic])
    exact = data[0, :, 0].astype(np.float64).sum()
    exact = exact / 4 if running else 2 * exact
    assert len(set(updates[False])) == 1
    assert len(set(updates[True])) == 2
    assert abs(updates[True].mean() - exact) < abs(updates[False].mean() - exact) / 5


def test_an_all_reduce_of_the_model_rounds_alike_on_all_replicas() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4000])
    y = builder.aiGraphcore.replicatedallreduce([x])
    data = np.full((2, 4, 4000), 2.0**-13, np.float16)
    data[:, 0] = 1.0
    opts = options(R=4, enableStochasticRounding=True)
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(2, [y]), device(opts), userOptions=opts
    )
    session.prepareDevice()
    session.setRandomSeed(1)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    sums = anchors[y]
    assert (sums == sums[:, :1]).all()
    assert (sums[0] != sums[1]).any()
    assert abs(sums.astype(np.float64).mean() - 1 - 3 * 2.0**-13) < 2.0**-15


def test_off_chip_sums_and_small_buckets_change_no_bit() -> None:
    half = Half()
    plain = half.weights(half.session())
    small = half.weights(half.session(gclOptions={"maximum_reduce_many_buffer_size": "64"}))
    opts = options(R=half.replicas, A=half.factor, enableStochasticRounding=True)
    opts.accumulatorTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    far = half.weights(half.ready(popart.TrainingSession(*half.model, device(opts), userOptions=opts)))
    for weight, other, third in zip(plain, small, far, strict=True):
        np.testing.assert_array_equal(weight, other)
        np.testing.assert_array_equal(weight, third)
