"""Engine: replicas on threads, half storage, replicas of an instance, and a failing call in the middle."""

from __future__ import annotations

import threading
import warnings
from queue import SimpleQueue
from time import sleep
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine import engine
from ipu_emu.engine.threads import worker_threads as workers
from ipu_emu.engine.threads.worker_threads import Workers
from tests.ipu_emu.helpers.sessions import device, infer, options, train


def trained(replicas: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray, int]:
    """A small convolutional network on ``replicas`` local replicas, after a few steps.

    Returns its losses, its weights, and the number of threads that it started.
    """
    before = set(threading.enumerate())
    random = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(dtype, [8, 4, 8, 8]))
    w = builder.addInitializedInputTensor((random.standard_normal((4, 4, 3, 3)) / 6).astype(dtype))
    y = builder.aiOnnx.tanh([builder.aiOnnx.conv([x, w], pads=[1, 1, 1, 1])])
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.conv([y, w], pads=[1, 1, 1, 1])], 1.0)
    opts = options(R=replicas, A=2)
    session = train(builder, popart.DataFlow(4, [loss]), loss, popart.ConstSGD(0.05), opts)
    anchors = session.initAnchorArrays()
    data = random.standard_normal((4, 2, replicas, 8, 4, 8, 8)).astype(dtype)
    session.run(popart.PyStepIO({x: data}, anchors))
    threads = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("ipu-")]
    return anchors[loss], session.engine.read(w), len(threads)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 10**18)
    losses, weights, _ = trained(4, dtype)
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda pid: set(range(4)))
    for _ in range(3):
        again = trained(4, dtype)
        assert again[2] == 4
        np.testing.assert_array_equal(again[0], losses)
        np.testing.assert_array_equal(again[1], weights)


@pytest.mark.parametrize(
    ("replicas", "cpus", "instances", "want"), [(4, 4, 1, 4), (4, 2, 1, 2), (2, 8, 1, 2), (4, 4, 2, 2), (2, 2, 2, 0)]
)
def test_threads_are_shared_among_instances(
    monkeypatch: pytest.MonkeyPatch, replicas: int, cpus: int, instances: int, want: int
) -> None:
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda pid: set(range(cpus)))
    monkeypatch.setattr(engine.popdist_py, "getNumInstances", lambda: instances)
    assert trained(replicas)[2] == want


def test_small_steps_stay_in_the_thread_of_the_caller() -> None:
    assert trained(2)[2] == 0


def test_workers_run_side_by_side_and_raise_the_first_error() -> None:
    workers, together = Workers(2), threading.Barrier(2, timeout=250)
    workers.run([together.wait, together.wait])  # otherwise each would time out in turn

    def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        workers.run([lambda: fail("first"), lambda: fail("second")])


def test_two_sessions_live_side_by_side() -> None:
    first, other = trained(2), trained(1)
    assert first[0].shape == (4, 2, 2)
    assert other[0].shape == (4, 2)


def test_a_failing_callback_leaves_the_session_usable() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiGraphcore.scale([x], 3.0)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device(options()))
    session.prepareDevice()

    def broken(id: str, prefetch: bool) -> np.ndarray:
        raise OSError("disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        session.run(popart.PyStepIOCallback(broken, print, lambda id: np.zeros(2, np.float32), print))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[y], [3, 3])


def test_loss_scaling_keeps_small_half_gradients() -> None:
    """A gradient of 2^-26 is 0 in FLOAT16; scaled by 4096 it moves the weight."""

    def moved(scaling: float) -> float:
        builder = popart.Builder()
        w = builder.addInitializedInputTensor(np.zeros(1, np.float16))
        loss = builder.aiGraphcore.identityloss([builder.aiGraphcore.scale([w], 2.0**-26)])
        optimizer = popart.SGD({"defaultLearningRate": (2.0**20, True), "lossScaling": (scaling, True)})
        session = popart.TrainingSession(
            builder.getModelProto(), popart.DataFlow(1, [w]), loss, optimizer, device(options())
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({}, anchors))
        return float(anchors[w][0])

    assert moved(1.0) == 0
    assert moved(4096.0) == -(2.0**-6)


@pytest.mark.parametrize("cpus", [1, 2])
def test_infinities_and_nan_are_computed_without_warnings(monkeypatch: pytest.MonkeyPatch, cpus: int) -> None:
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda pid: set(range(cpus)))
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    ids = [getattr(builder.aiOnnx, name)([x]) for name in ("log", "sqrt", "exp", "reciprocal", "logsoftmax")]
    ids.append(builder.aiOnnx.cast([builder.aiOnnx.mul([x, x])], "FLOAT16"))
    ids.append(builder.aiOnnx.cast([builder.aiOnnx.log([x])], "INT32"))
    opts = options(R=2)
    flow = popart.DataFlow(1, dict.fromkeys(ids, popart.AnchorReturnType("Sum")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = infer(builder, flow, {x: np.array([[-1e9, 0], [np.inf, 1e9]], np.float32)}, opts)
    log, root, exp, inverse, _, half, _ = (outputs[id] for id in ids)
    np.testing.assert_allclose(log, [[np.nan, -np.inf], [np.inf, 20.723266]], rtol=1e-6)
    np.testing.assert_allclose(root, [[np.nan, 0], [np.inf, 31622.777]], rtol=1e-6)
    np.testing.assert_array_equal(exp, [[0, 1], [np.inf, np.inf]])
    np.testing.assert_allclose(inverse, [[-1e-9, np.inf], [0, 1e-9]], rtol=1e-6)
    np.testing.assert_array_equal(half, [[np.inf, 0], [np.inf, np.inf]])


def test_an_interrupt_while_a_result_is_taken_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is lost then, and cannot be waited for again."""

    class Lossy(SimpleQueue[Any]):
        def get(self, *args: Any) -> Any:
            super().get(*args)
            raise KeyboardInterrupt

    pool, ended = Workers(2), []
    lossy = iter([SimpleQueue(), Lossy()])
    monkeypatch.setattr(workers, "SimpleQueue", lambda: next(lossy, None) or SimpleQueue())

    def slowly() -> None:
        sleep(0.05)
        ended.append(1)

    with pytest.raises(KeyboardInterrupt):
        pool.run([slowly, slowly])
    assert ended == [1, 1]
    pool.run([slowly, slowly])
    assert len(ended) == 4
    pool.close()
