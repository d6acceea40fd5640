"""Results, gradients and FLOAT16 of ops compared with PyTorch; and every attribute of an op has a check.

The rows of one opset are one model, so that a table needs few sessions. A failure lists all that differ.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from ipu_emu import popart
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.ops.cases.torch_tables import TABLES, Row
from tests.ipu_emu.ops.test_defaults_and_edges import cases_of

TOLERANCE = {np.float32: 1e-4, np.float16: 1e-2}
#: Files with tests of attributes that are in no table; each names the op and the attribute.
FILES = (
    "ops/cases/graphcore_cases.py",
    "ops/control/test_packed_data_block.py",
    "ops/losses/test_ctc_decoding.py",
    "ops/products/test_spline_convolution.py",
    "ops/test_attributes.py",
    "popart/builder/test_signatures.py",
    "popart/builder/test_subgraphs.py",
)


class Model:
    """The rows of one opset as one model: the sum of all results, each times its own weights, is the loss."""

    def __init__(self, rows: Sequence[Row], dtype: Any) -> None:
        self.rows, self.dtype = rows, dtype
        self.builder = popart.Builder(opsets={"ai.onnx": rows[0].opset})
        self.fed: dict[str, np.ndarray] = {}
        self.inputs: list[list[str]] = []
        self.outputs: list[str] = []
        self.weights: list[np.ndarray] = []
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        b, ids = self.builder, list[str]()
        for index, array in enumerate(row.arrays):
            if array is None:
                ids.append("")
                continue
            value = array.astype(self.dtype) if array.dtype == np.float32 else array
            if index in row.known:
                ids.append(b.aiOnnx.constant(value))
            elif index in row.wrt:
                ids.append(b.addInitializedInputTensor(value))
            else:
                ids.append(b.addInputTensor(popart.TensorInfo(value)))
                self.fed[ids[-1]] = value
        opset = b.aiGraphcore if row.graphcore else b.aiOnnx
        outputs = getattr(opset, row.name)(ids, **row.options)
        self.inputs.append(ids)
        self.outputs.append(outputs if isinstance(outputs, str) else outputs[0])

    def run(self, gradients: bool) -> dict[str, np.ndarray]:
        device, b = popart.DeviceManager().createCpuDevice(), self.builder
        if not gradients:
            session: Any = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, self.outputs), device)
        else:
            losses = []
            for row, id in zip(self.rows, self.outputs, strict=True):
                if row.wrt:
                    losses.append(b.aiGraphcore.identityloss([self.weighted(id)], popart.ReductionType.Sum))
            loss = b.aiOnnx.sum(losses)
            wanted = [*self.outputs, *(popart.reservedGradientPrefix() + id for id in self.trained)]
            flow = popart.DataFlow(1, wanted)
            session = popart.TrainingSession(b.getModelProto(), flow, loss, popart.ConstSGD(1e-6), device)
        session.prepareDevice()
        session.weightsFromHost()
        anchors: dict[str, np.ndarray] = session.initAnchorArrays()
        session.run(popart.PyStepIO(self.fed, anchors))
        return anchors

    def weighted(self, id: str) -> str:
        shape = self.builder.getTensorShape(id)
        return str(self.builder.aiOnnx.mul([id, self.builder.aiOnnx.constant(weights_of(shape))]))

    @property
    def trained(self) -> list[str]:
        return [ids[i] for row, ids in zip(self.rows, self.inputs, strict=True) for i in row.wrt]


def weights_of(shape: Sequence[int]) -> np.ndarray:
    """Different weights of the elements of a result in the loss."""
    return np.asarray(np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def expected(row: Row, dtype: Any) -> tuple[Any, list[Any]]:
    """PyTorch's result of the row in float32, and its gradients."""
    tensors = []
    for index, array in enumerate(a for a in row.arrays if a is not None):
        rounded = array.astype(dtype).astype(np.float32) if array.dtype == np.float32 else array
        rounded = rounded.astype(np.int64) if rounded.dtype == np.uint32 else rounded
        tensors.append(torch.tensor(rounded, requires_grad=index in row.wrt))
    result = row.function(*tensors)
    if not row.wrt:
        return result.detach().numpy(), []
    (result * torch.tensor(weights_of(result.shape))).sum().backward()
    return result.detach().numpy(), [tensors[index].grad.numpy() for index in row.wrt]


def differences(rows: Sequence[Row], dtype: Any) -> list[str]:
    """The differences between the rows, all of one opset, and PyTorch."""
    gradients = dtype is np.float32 and any(row.wrt for row in rows)
    try:
        model = Model(rows, dtype)
        outputs = model.run(gradients)
    except popart.popart_exception as error:
        if len(rows) == 1:
            return [f"{rows[0]}: refused: {error}"]
        return [text for row in rows for text in differences([row], dtype)]
    texts = []
    for row, ids, output in zip(rows, model.inputs, model.outputs, strict=True):
        result, slopes = expected(row, dtype)
        pairs = [("result", outputs[output], result)]
        if gradients:
            names = [popart.reservedGradientPrefix() + ids[index] for index in row.wrt]
            pairs += [(f"gradient of {i}", outputs[id], g) for i, id, g in zip(row.wrt, names, slopes, strict=True)]
        for what, actual, wanted in pairs:
            if actual.shape != wanted.shape:
                texts.append(f"{row}: {what} has shape {actual.shape}, expected {wanted.shape}")
            elif not np.allclose(actual, wanted, TOLERANCE[dtype], TOLERANCE[dtype], equal_nan=True):
                texts.append(f"{row}: {what} {actual.reshape(-1)[:4]}, expected {wanted.reshape(-1)[:4]}")
    return texts


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("table", TABLES)
def test_results_and_gradients(table: str, dtype: Any) -> None:
    rows = sorted((row for row in TABLES[table]() if row.half or dtype is np.float32), key=lambda row: row.opset)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row.opset)]
        differing = [text for group in groups for text in differences(group, dtype)]
    assert not differing, "\n" + "\n".join(differing)


def in_tables() -> dict[str, set[str]]:
    """The attributes that the rows of the tables give, by op."""
    attributes: dict[str, set[str]] = {}
    for (name, _, options, _), _ in cases_of("graphcore"):
        attributes.setdefault(name, set()).update(options)
    for row in (row for table in TABLES.values() for row in table() if row.graphcore):
        attributes.setdefault(row.name, set()).update(row.options)
    return attributes


def test_every_attribute_of_aigraphcore_has_a_check() -> None:
    """The message lists attributes without one; ``onnx/test_onnx_inventory.py`` does the same for ONNX's ops."""
    known, lacking = in_tables(), []
    texts = [(ROOT / "tests" / "ipu_emu" / file).read_text() for file in FILES]
    for name, (type, versions) in AI_GRAPHCORE.items():
        words = {word.split("=")[0] for text in versions.values() for word in text.split()}
        for attribute in sorted(words - {"num_outputs", "debugContext"} - known.get(name, set())):
            named = (text for text in texts if attribute in text and (name in text or f'"{type}"' in text))
            if next(named, None) is None:
                lacking.append(f"{name}: {attribute}")
    assert not lacking, "no check of " + ", ".join(lacking)
