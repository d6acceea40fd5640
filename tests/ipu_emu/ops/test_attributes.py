"""Attributes of ops that are in no table of checks: random numbers, CTC, groups, printing, planning, old forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train
from tests.ipu_emu.ops.cases.edge_tables import some

MANY = 4000


def results(
    name: str, arrays: list[np.ndarray], *values: Any, face: str = "aiGraphcore", opset: int = 10, **options: Any
) -> list[np.ndarray]:
    """The results of one op, all of whose inputs are fed."""
    builder = popart.Builder(opsets={"ai.onnx": opset})
    fed = {builder.addInputTensor(popart.TensorInfo(array)): array for array in arrays}
    outputs = getattr(getattr(builder, face), name)(list(fed), *values, **options)
    ids = [outputs] if isinstance(outputs, str) else list(outputs)
    anchors = infer(builder, popart.DataFlow(1, ids), fed)
    return [anchors[id] for id in ids]


@pytest.mark.parametrize(("dtype", "kind"), [(1, np.float32), (10, np.float16)])
@pytest.mark.parametrize("like", [False, True])
def test_random_numbers_follow_their_distribution(dtype: int, kind: type, like: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [MANY])
    suffix, first = ("like", [[x]]) if like else ("", [])
    shape: dict[str, Any] = {} if like else {"shape": [MANY]}
    normal = getattr(builder.aiOnnx, f"randomnormal{suffix}")(*first, dtype=dtype, mean=3.0, scale=0.5, **shape)
    uniform = getattr(builder.aiOnnx, f"randomuniform{suffix}")(*first, dtype=dtype, high=5.0, low=3.0, **shape)
    outputs = infer(builder, popart.DataFlow(1, [normal, uniform]), {x: np.zeros(MANY, np.float16)})
    assert {outputs[id].dtype for id in outputs} == {np.dtype(kind)}
    y, z = (outputs[id].astype(np.float64) for id in (normal, uniform))
    assert abs(y.mean() - 3) < 0.05
    assert abs(y.std() - 0.5) < 0.05
    assert z.min() >= 3
    assert z.max() <= 5
    assert abs(z.mean() - 4) < 0.05


def test_numbers_like_a_tensor_have_its_type() -> None:
    for name in ("randomnormallike", "randomuniformlike"):
        (numbers,) = results(name, [np.zeros(3, np.float16)], face="aiOnnx")
        assert numbers.dtype == np.float16


def test_multinomial_draws_as_many_as_asked() -> None:
    sure = np.log(np.array([[1, 1e-9], [1e-9, 1]], np.float32))
    (draws,) = results("multinomial", [sure], dtype=6, sample_size=3, face="aiOnnx")
    assert draws.dtype == np.int32
    assert draws.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_ctc_loss() -> None:
    logs = torch.log_softmax(torch.rand(6, 2, 4), 2)
    labels, lengths = torch.tensor([[1, 2, 0], [3, 3, 1]]), (torch.tensor([6, 5]), torch.tensor([2, 3]))
    losses = functional.ctc_loss(logs, labels, *lengths, reduction="none").numpy()
    arrays = [logs.numpy(), *(t.numpy().astype(np.uint32) for t in (labels, *lengths))]
    kinds = popart.ReductionType
    for reduction, wanted in (
        (kinds.NoReduction, losses),
        (kinds.Sum, losses.sum()),
        (kinds.Mean, (losses / lengths[1].numpy()).mean()),
    ):
        (loss,) = results("ctcloss", arrays, reduction=reduction, blank=0)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    halves = [arrays[0].astype(np.float16), *arrays[1:]]
    for wanted_type, kind in (("FLOAT", np.float32), ("FLOAT16", np.float16), ("UNDEFINED", np.float16)):
        assert results("ctcloss", halves, outDataType=wanted_type)[0].dtype == kind
    without_path = [*arrays[:2], np.array([2, 5], np.uint32), np.array([3, 3], np.uint32)]
    for zero, wanted in ((False, np.inf), (True, 0.0)):
        (loss,) = results("ctcloss", without_path, kinds.NoReduction, zeroInfinity=zero)
        assert loss[0] == wanted


@pytest.mark.parametrize("spread", [0, 1])
@pytest.mark.parametrize("axis", [1, -2])
def test_grouped_scatter_scatters_each_group_by_itself(spread: int, axis: int) -> None:
    data, indices = some((2, 3, 2)), np.array([[0, 1, 0], [2, 2, 0]], np.int32)
    wanted = np.zeros((2, 4, 2), np.float32)
    for group in range(2):
        np.add.at(wanted[group], indices[group], data[group])
    full = indices if spread else np.repeat(indices[..., None], 2, 2)
    options = {"axis_size": 4, "axis": axis, "group_size": 2, "enable_index_broadcast": spread}
    (actual,) = results("groupedscatterreduce", [data, full], reduction=popart.ScatterReduction.Sum, **options)
    np.testing.assert_allclose(actual, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["FLOAT", "FLOAT16", "INT32", "UINT32", "BOOL"])
def test_init_makes_zeros_of_any_type(name: str) -> None:
    builder = popart.Builder()
    kind = getattr(popart.DataType, name)
    y = builder.aiGraphcore.init(shape=[2, 3], data_type=kind, init_type=popart.InitType.Zero, batch_axis=-1)
    zeros = infer(builder, popart.DataFlow(1, [y]), {})[y]
    assert zeros.shape == (2, 3)
    assert popart.TensorInfo(zeros).data_type() == name
    assert not zeros.any()


def test_multi_convolutions_take_advice_for_their_plan() -> None:
    a, b = some((1, 2, 5, 5)), some((1, 2, 6, 6), seed=2)
    w, v = some((3, 2, 3, 3), seed=3), some((2, 2, 2, 2), seed=4)
    builder = popart.Builder()
    fed = {builder.addInputTensor(popart.TensorInfo(array)): array for array in (a, w, b, v)}
    ids = list(fed)
    convolutions = builder.aiGraphcore.multiconv(
        [ids[:2], ids[2:]],
        dilations=[[1, 1], [2, 2]],
        pads=[[1, 1, 1, 1], [0, 0, 0, 0]],
        strides=[[1, 1], [2, 2]],
        planType="parallel",
        availableMemoryProportions=[0.5, 0.5],
        partialsTypes=["float", "half"],
        perConvReservedTiles=50,
        cycleBackOff=0.1,
        enableConvDithering=[0, 1],
    )
    outputs = infer(builder, popart.DataFlow(1, convolutions), fed)
    x, y = (torch.tensor(array) for array in (a, b))
    first = functional.conv2d(x, torch.tensor(w), padding=1)
    second = functional.conv2d(y, torch.tensor(v), stride=2, dilation=2)
    for id, wanted in zip(convolutions, (first, second), strict=True):
        np.testing.assert_allclose(outputs[id], wanted.numpy(), rtol=1e-5)


def test_old_forms_of_upsample() -> None:
    x = some((1, 1, 2, 2))
    wanted = x.repeat(2, 2).repeat(3, 3)
    (actual,) = results("upsample", [x], height_scale=2.0, width_scale=3.0, face="aiOnnx", opset=6)
    np.testing.assert_array_equal(actual, wanted)
    (actual,) = results("upsample", [x], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest", face="aiOnnx", opset=7)
    np.testing.assert_array_equal(actual, wanted)


def test_largest_values_of_regions() -> None:
    x, region = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.array([[0, 0, 0, 6, 6]], np.float32)
    (actual,) = results("maxroipool", [x, region], pooled_shape=[2, 2], spatial_scale=0.5, face="aiOnnx")
    assert actual.tolist() == [[[[5, 7], [13, 15]]]]


@pytest.mark.parametrize("zero", [0, 1])
def test_sequences_are_copied_between_places(zero: int) -> None:
    source, target = some((3, 2)), -np.ones((4, 2), np.float32)
    numbers = [np.array([n], np.uint32) for n in (2, 0, 1)]
    (actual,) = results("sequenceslice", [source, target, *numbers], zeroUnused=zero)
    wanted = target * (not zero)
    wanted[1:3] = source[:2]
    np.testing.assert_array_equal(actual, wanted)


def test_an_lstm_of_aigraphcore_gives_the_sequence_or_its_end() -> None:
    arrays = [some((4, 2, 3)), some((4, 8, 5), seed=2), some((4, 5), seed=3)]
    sequence, state = results("lstm", arrays, outputFullSequence=1)
    end, again = results("lstm", arrays, outputFullSequence=0)
    np.testing.assert_array_equal(sequence[-1], end)
    np.testing.assert_array_equal(state, again)


def test_rows_are_dropped_as_a_whole_in_training_only() -> None:
    x = np.ones((200, 3), np.float32)
    assert (results("shapeddropout", [x], shape=[200, 1], ratio=0.25)[0] == 1).all()
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(x)
    y = builder.aiGraphcore.shapeddropout([w], shape=[200, 1], ratio=0.25)
    loss = builder.aiGraphcore.identityloss([y])
    session = train(builder, popart.DataFlow(1, [y]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    assert (anchors[y] == anchors[y][:, :1]).all()
    assert set(np.unique(anchors[y]).round(4)) == {np.float32(0), np.float32(1.3333)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"digits": 4, "floatFormat": 3, "title": "t"}, "t: [1 2.5 -3 0.125]\n"),
        ({"openBracket": "(", "closeBracket": ")", "separator": ",", "digits": 2}, "x: (1.0,2.5,-3.0,0.1)\n"),
        ({"summariseThreshold": 3, "edgeItems": 1, "digits": 2}, "x: [1.0 ... 0.1]\n"),
        ({"maxLineWidth": 12, "digits": 2}, "x: [1.0 2.5\n-3.0 0.1]\n"),
    ],
)
def test_printed_tensors(options: dict[str, Any], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiGraphcore.printtensor([x], print_gradient=0, **options)
    infer(builder, popart.DataFlow(1, [y]), {x: np.array([1, 2.5, -3, 0.125], np.float32)})
    assert capfd.readouterr().err == text
