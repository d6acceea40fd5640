"""StepIO: sizes, positions, element types, callbacks, and the texts of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, infer, options, train


def doubled(
    shape: list[int], bps: int, opts: Any = None, kind: str = "FLOAT", returns: Any = None
) -> tuple[str, str, Any]:
    """A session that returns x + x."""
    builder = popart.Builder()
    x = builder.addInputTensor(kind, shape)
    y = builder.aiOnnx.add([x, x])
    flow = popart.DataFlow(bps, {y: returns or popart.AnchorReturnType("All")})
    opts = opts or options()
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    return x, y, session


def test_only_the_number_of_elements_counts() -> None:
    x, y, session = doubled([2, 3], 2)
    out = np.zeros(12, np.float32)
    session.run(popart.PyStepIO({x: np.arange(12, dtype=np.float32).reshape(3, 4)}, {y: out}))
    np.testing.assert_array_equal(out, 2 * np.arange(12))


def test_positions_survive_runs_and_return_at_the_end() -> None:
    x, y, session = doubled([2], 1)
    data, out = np.arange(6, dtype=np.float32), np.zeros(4, np.float32)
    stepio = popart.PyStepIO({x: data}, {y: out})
    stepio.enableRuntimeAsserts(False)
    seen = []
    for _ in range(4):
        session.run(stepio)
        seen.append(out.copy())
    np.testing.assert_array_equal(seen, [[0, 2, 0, 0], [0, 2, 4, 6], [8, 10, 4, 6], [8, 10, 0, 2]])


def test_sizes_are_checked_in_the_first_run_only() -> None:
    x, y, session = doubled([2], 1)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, anchors))
    session.run(popart.PyStepIO({x: np.ones(4, np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[y], [2, 2])


def test_input_size_text() -> None:
    x, _, session = doubled([2, 3], 5, options(R=2))
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(popart.PyStepIO({x: np.zeros(7, np.float32)}, session.initAnchorArrays()))
    assert error.value.args[0].split("\n") == [
        f"Unexpected number of input elements for Tensor {x}. Expected 60, but received 7.",
        "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
        "This with, ",
        "   replication  factor = 2",
        "   accumulation factor = 1",
        "   batches per step    = 5",
        "   Tensor nelms        = 6",
    ]


def test_output_size_text() -> None:
    x, y, session = doubled([3], 4, returns=popart.AnchorReturnType("EveryN", 2))
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(popart.PyStepIO({x: np.zeros(12, np.float32)}, {y: np.zeros(12, np.float32)}))
    lines = error.value.args[0].split("\n")
    assert lines[0] == f"Unexpected number of output elements for Tensor {y}. Expected 6, but received 12."
    assert lines[-2:] == ["The anchor return type is  EveryN", "The return period is 2"]


def test_arrays_must_be_contiguous() -> None:
    strided = np.zeros((4, 4), np.float32)[:, ::2]
    for inputs, outputs, word in (({"x": strided}, {}, "input"), ({}, {"x": strided}, "output")):
        with pytest.raises(popart.popart_exception) as error:
            popart.PyStepIO(inputs, outputs)
        assert error.value.args[0] == (
            f"PyStepIO is unable to use the numpy {word} array for tensor 'x' as it is not c-contiguous (a data "
            "conversion here could have a significant impact on performance and hence is not allowed)"
        )
    with pytest.raises(popart.popart_exception) as error:
        popart.PyWeightsIO({"w": strided})
    assert error.value.args[0] == (
        "PyWeightsIO is unable to use the provided numpy output array for tensor 'w' as it is not c-contiguous. "
        "Please use a function like `numpy.ascontiguousarray()` to make contiguous before passing to PyWeightsIO"
    )


def test_ids_that_are_not_inputs() -> None:
    x, y, session = doubled([2], 1)
    data, anchors = np.zeros(2, np.float32), session.initAnchorArrays()
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(popart.PyStepIO({x: data, y: data}, anchors))
    assert error.value.args[0] == (
        f"The tensor '{y}' has been provided as one of the inputs to the stepIO, but it is not registered as one of "
        "the inputs to the model. Please check this tensor and your stepIO."
    )
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(popart.PyStepIO({x: data, "z": data}, anchors))
    assert error.value.args[0] == (
        "Testing that the buffer provided by user for input Tensor z has the correct number of elements, But there "
        "is no Tensor named z in the Ir's main Graph, and it does not exist in the original ONNX Model."
    )


def test_ids_that_are_missing() -> None:
    x, y, session = doubled([2], 1)
    with pytest.raises(popart.popart_runtime_error, match=f"No tensor {x} provided in PyStepIO's inputs"):
        session.run(popart.PyStepIO({}, session.initAnchorArrays()))
    with pytest.raises(popart.popart_runtime_error, match=f"No tensor {y} provided in PyStepIO's outputs"):
        session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, {}))


def test_element_types() -> None:
    x, y, session = doubled([2], 1, kind="INT32")
    anchors = session.initAnchorArrays()
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, anchors))
    assert error.value.args[0] == (
        f"Type discrepancy for tensor {x}. User provided : FLOAT and expected : INT32. Consider a custom copy here "
        "(as memcpy cannot be used)"
    )
    with pytest.warns(UserWarning, match="INT64 step data is converted"):
        session.run(popart.PyStepIO({x: np.array([1, -2], np.int64)}, anchors))
    np.testing.assert_array_equal(anchors[y], [2, -4])


def test_a_callback_gives_the_type_of_the_model() -> None:
    x, _, session = doubled([2], 1)

    def run(chunk: Any) -> np.ndarray:
        out = np.zeros(2, np.float32)
        stepio = popart.PyStepIOCallback(lambda id, prefetch: chunk, len, lambda id: out, len)
        session.run(stepio)
        return out

    for chunk, kind in ((np.ones(2, np.int32), "INT32"), ([1.0, 2.0], "DOUBLE"), (np.ones(2, ">f4"), ">f4")):
        with pytest.raises(popart.popart_runtime_error) as error:
            run(chunk)
        assert error.value.args[0] == (
            f"Type discrepancy for tensor {x}. User provided : {kind} and expected : FLOAT. Consider a custom copy "
            "here (as memcpy cannot be used)"
        )
    np.testing.assert_array_equal(run(np.ones(2, np.float32)), [2, 2])


def test_outputs_must_have_the_type_and_size_of_the_model() -> None:
    x, y, session = doubled([2], 1)
    data = np.ones(2, np.float32)

    def run(out: Any) -> None:
        session.run(popart.PyStepIO({x: data}, {y: out}))

    def call(out: Any) -> None:
        session.run(popart.PyStepIOCallback(lambda id, prefetch: data, len, lambda id: out, len))

    fixed = np.zeros(2, np.float32)
    fixed.flags.writeable = False
    wrong = f"Type discrepancy for tensor {y}. User provided : DOUBLE and expected : FLOAT"
    for give in (run, call):
        for out, text in ((np.zeros(2), wrong), (fixed, "is read-only"), ([0.0, 0.0], "give a numpy array")):
            with pytest.raises(popart.popart_exception) as error:
                give(out)
            assert text in error.value.args[0]
    with pytest.raises(popart.popart_exception, match="give a numpy array"):
        call(None)


def test_int32_results_may_go_to_arrays_of_int64() -> None:
    x, y, session = doubled([2], 1, kind="INT32")
    out = np.zeros(2, np.int64)
    session.run(popart.PyStepIO({x: np.array([1, -2], np.int32)}, {y: out}))
    np.testing.assert_array_equal(out, [2, -4])


@pytest.mark.filterwarnings("ignore:Tensor input. INT64 step data is converted to INT32")
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_arrays_may_change_between_runs(dtype: type) -> None:
    """A program fills the array of its StepIO again for every step."""
    x, y, session = doubled([2], 1, kind="INT32")
    data, out = np.array([1, 2], dtype), np.zeros(2, np.int32)
    stepio = popart.PyStepIO({x: data}, {y: out})
    for value in (1, 5):
        data[:] = value
        session.run(stepio)
        np.testing.assert_array_equal(out, [2 * value, 2 * value])


def test_bases() -> None:
    callbacks = popart.PyStepIOCallback(lambda id, prefetch: None, len, np.empty, len)
    callbacks.enableRuntimeAsserts(False)
    assert isinstance(callbacks, popart.IStepIO)
    assert isinstance(popart.PyStepIO({}, {}), popart.IStepIO)
    assert isinstance(popart.PyWeightsIO({}), popart.IWeightsIO)


def test_callbacks_are_called_in_the_order_of_the_data() -> None:
    """Once per (batch, micro-batch, replica), each with one micro-batch of one replica."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    y = builder.aiOnnx.mul([x, w])
    loss = builder.aiGraphcore.identityloss([y])
    session = train(builder, popart.DataFlow(2, [y]), loss, popart.ConstSGD(1e-30), options(R=2, A=3))
    calls: list[str] = []
    chunks = iter(np.arange(24, dtype=np.float32).reshape(12, 2))
    results: list[np.ndarray] = []

    def give(id: str, prefetch: bool) -> np.ndarray:
        calls.append(f"in {id}")
        return next(chunks)

    def take(id: str) -> np.ndarray:
        calls.append(f"out {id}")
        results.append(np.zeros(2, np.float32))
        return results[-1]

    done = [lambda id: calls.append(f"in done {id}"), lambda id: calls.append(f"out done {id}")]
    session.run(popart.PyStepIOCallback(give, done[0], take, done[1]))
    micro_batch = [f"in {x}", f"in done {x}"] * 2 + [f"out {y}", f"out done {y}"] * 2
    assert calls == micro_batch * 6
    np.testing.assert_array_equal(np.concatenate(results), np.arange(24))


@pytest.mark.parametrize(
    ("prefetched", "flags"),
    [(True, [False, True, False, True, False]), (False, [False, False, False])],
)
def test_a_callback_may_refuse_to_prefetch(prefetched: bool, flags: list[bool]) -> None:
    """It returns None for a prefetch, and is called again when the chunk is needed."""
    _, _, session = doubled([2], 3, options(enablePrefetchDatastreams=prefetched))
    requests: list[bool] = []
    results: list[np.ndarray] = []
    chunks = iter(np.arange(12, dtype=np.float32).reshape(6, 2))

    def give(id: str, prefetch: bool) -> np.ndarray | None:
        requests.append(prefetch)
        return None if prefetch else next(chunks)

    def take(id: str) -> np.ndarray:
        results.append(np.zeros(2, np.float32))
        return results[-1]

    stepio = popart.PyStepIOCallback(give, lambda id: None, take, lambda id: None)
    for _ in range(2):
        session.run(stepio=stepio, debugName="step")
    assert requests == flags * 2
    np.testing.assert_array_equal(np.concatenate(results), 2 * np.arange(12))


def test_a_callback_without_data_is_an_error() -> None:
    x, _, session = doubled([2], 1)
    stepio = popart.PyStepIOCallback(
        lambda id, prefetch: None, lambda id: None, lambda id: np.zeros(2, np.float32), lambda id: None
    )
    with pytest.raises(popart.popart_runtime_error) as error:
        session.run(stepio)
    assert error.value.args[0] == (f"[StepIOSplitter] IStepIO unexpectedly did not provide input data for tensor {x}")


def test_a_weight_may_be_named_like_an_input() -> None:
    builder = popart.Builder()
    x, w = builder.addInputTensor("FLOAT", [2]), builder.addInitializedInputTensor(np.array([2, 3], np.float32))
    y = builder.aiOnnx.mul([x, w])
    ones = np.ones(2, np.float32)
    anchors = infer(builder, popart.DataFlow(1, [y]), {x: ones, w: ones})
    assert anchors[y].tolist() == [2, 3]
    with pytest.raises(popart.popart_exception, match="Unexpected number of input elements for Tensor init_input"):
        infer(builder, popart.DataFlow(1, [y]), {x: ones, w: np.ones(3, np.float32)})
