"""The digest of weights: what it covers, that all forms of a model give the same, and who prints it."""

import hashlib

import numpy as np
import pytest

import ipu_emu.popart as popart
from ipu_emu.hostio import digest
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py import trace
from popdist_py.environment import NAMES, VERBOSITY
from tests.ipu_emu.helpers.sessions import train

W, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, -2], np.float16)


def test_it_is_the_sha256_of_names_types_shapes_and_elements_in_the_order_of_names():
    text = b"b float16 [2]\n" + B.tobytes() + b"w float32 [2, 3]\n" + W.tobytes()
    expected = hashlib.sha256(text).hexdigest()[:16]
    assert digest({"w": W, "b": B}) == digest({"b": B, "w": W}) == expected
    assert digest({"w": np.asfortranarray(W), "b": B.astype(">f2")}) == expected


@pytest.mark.parametrize(
    "other",
    [
        {"v": W},
        {"w": W.reshape(3, 2)},
        {"w": W.astype(np.float64)},
        {"w": W.view(np.int32)},
        {"w": np.where(W == 0, np.float32(-0.0), W)},
        {"w": np.where(W == 1, np.nextafter(W, 2), W)},
        {"w": W, "b": B},
    ],
    ids=["name", "shape", "wider type", "type of the same size", "zero's sign", "last bit", "one more"],
)
def test_any_change_changes_it(other):
    assert digest(other) != digest({"w": W})


def test_all_nans_are_one():
    payloads = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    assert digest({"w": payloads}) == digest({"w": np.array([np.nan, np.nan, np.nan, 1], np.float32)})


def test_what_has_no_weights_is_named():
    with pytest.raises(TypeError, match=r"list.*arrays by name"):
        digest([W])


@pytest.mark.torch
def test_modules_and_state_dicts_give_that_of_their_arrays():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    module = torch.nn.BatchNorm1d(3)
    arrays = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    assert digest(module) == digest(module.state_dict()) == digest(arrays)
    assert digest({"w": torch.tensor(W).bfloat16()}) != digest({"w": W})
    assert digest({"w": torch.tensor(W).bfloat16(), "version": 3}) == digest({"w": torch.tensor(W).bfloat16()})


def linear() -> tuple[popart.TrainingSession, str, str]:
    builder = popart.Builder()
    x, w = builder.addInputTensor("FLOAT", [3]), builder.addInitializedInputTensor(W[0])
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([x, w])], 1.0, popart.ReductionType.Sum)
    rule = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.5, True)})
    session = train(builder, popart.DataFlow(1, [loss]), loss, rule)
    session.run(popart.PyStepIO({x: np.ones(3, np.float32)}, session.initAnchorArrays()))
    return session, w, loss


@pytest.mark.parametrize(
    ("environment", "prints"),
    [
        ({}, False),
        ({VERBOSITY: "0"}, False),
        ({VERBOSITY: "1"}, True),
        ({VERBOSITY: "1", NAMES["num_total_replicas"]: "2", NAMES["replica_index_offset"]: "1"}, False),
    ],
    ids=["alone", "silent", "verbose", "second instance"],
)
def test_a_session_prints_that_of_its_weights_when_it_reads_them(environment, prints, monkeypatch, capsys):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session, w, _ = linear()
    assert "weights" not in capsys.readouterr().err
    session.weightsToHost()
    said = capsys.readouterr().err
    value = np.zeros(3, np.float32)
    session.readWeights(popart.PyWeightsIO({w: value}))
    assert digest(session) == digest({w: value})  # without the momentum
    assert said == (f"weights {digest(session)}\n" if prints else "")


def test_the_report_of_a_traced_run_has_the_last(tmp_path):
    trace.start(tmp_path)
    try:
        session, _, _ = linear()
        session.weightsToHost()
    finally:
        trace.stop()
    assert report_data(analyse(read_run(tmp_path)))["weights"] == digest(session)
