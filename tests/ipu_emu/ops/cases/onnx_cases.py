"""ONNX's own operator cases, run through the importer and an inference session."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ipu_emu import popart
from ipu_emu.ops import TABLE
from popdist_py.files.atomic_write import replace_file
from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.helpers.sessions import options

__all__ = ["AS_WRITTEN", "check", "exported_models", "node_cases", "run"]

#: The device has no integers of 64 bits unless an option of the session keeps them.
AS_WRITTEN = {"enableSupportedDataTypeCasting": False}


#: ONNX computes its cases when they are collected, in 4 s: once for each version, not in every process of a test run.
_KEPT = ROOT / ".pytest_cache" / f"onnx-{onnx.__version__}-cases-numpy-{np.__version__}.pickle"


@cache
def node_cases() -> dict[str, Any]:
    """All operator cases by name."""
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        saved: dict[str, Any] = pickle.loads(_KEPT.read_bytes())
        return saved
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = {case.name: case for case in collect_testcases(None)}
    _KEPT.parent.mkdir(exist_ok=True)
    replace_file(_KEPT, pickle.dumps(cases))
    return cases


def exported_models() -> dict[str, tuple[onnx.ModelProto, Any]]:
    """Models of the package that PyTorch exported, with their data, by name."""
    root, models = Path(onnx.__file__).parent / "backend" / "test" / "data", {}
    for kind in ("pytorch-converted", "pytorch-operator"):
        for folder in sorted((root / kind).iterdir()):
            model = onnx.load(folder / "model.onnx")
            sets = [
                [_protos(data, part) for part in ("input", "output")] for data in sorted(folder.glob("test_data*"))
            ]
            models[folder.name] = (model, sets)
    return models


def _protos(folder: Path, part: str) -> list[onnx.TensorProto]:
    files = sorted(folder.glob(f"{part}_*.pb"), key=lambda file: int(file.stem.split("_")[1]))
    return [onnx.TensorProto.FromString(file.read_bytes()) for file in files]


def check(model: onnx.ModelProto, data: Any, rtol: float, atol: float) -> None:
    """Run a model on each of its data sets and compare; raise an error for a difference."""
    for inputs, outputs in data:
        names = [info.name for info in model.graph.input if info.name not in _initializers(model)]
        results = run(model, dict(zip(names, (_array(value) for value in inputs), strict=False)))
        for name, expected in zip((info.name for info in model.graph.output), outputs, strict=True):
            actual, wanted = results[name], _array(expected)
            if actual.dtype != wanted.dtype or actual.shape != wanted.shape:
                raise AssertionError(
                    f"{name}: {wanted.dtype}{wanted.shape} expected, {actual.dtype}{actual.shape} made"
                )
            np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)


def run(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], times: int = 1) -> dict[str, np.ndarray]:
    """A step of inference, of ``times`` equal batches; only inputs that must be constant become constants."""
    known = {name for node in model.graph.node for name in _known_inputs(node)}
    numbers = {name for name, value in inputs.items() if value.dtype.kind in "iub"}
    for constants in (known, known | numbers):
        try:
            return _infer(model, inputs, constants, times)
        except popart.popart_exception as error:
            if "is not a constant" not in str(error):
                raise
    return _infer(model, inputs, set(inputs), times)


def _infer(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], known: set[str], times: int
) -> dict[str, np.ndarray]:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    known = known & set(inputs)
    fed = [info for info in fixed.graph.input if info.name not in known]
    del fixed.graph.input[:]
    fixed.graph.input.extend(fed)
    constants = [(name, numpy_helper.from_array(inputs[name])) for name in sorted(known)]
    nodes = [helper.make_node("Constant", [], [name], value=value) for name, value in constants]
    nodes += fixed.graph.node
    del fixed.graph.node[:]
    fixed.graph.node.extend(nodes)
    names = list(dict.fromkeys(info.name for info in fixed.graph.output))
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(
        fixed.SerializeToString(), popart.DataFlow(times, names), device, userOptions=options(**AS_WRITTEN)
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = {name: np.stack([value] * times) for name, value in inputs.items() if name not in known}
    session.run(popart.PyStepIO(data, anchors))
    session.close()
    return anchors


def _known_inputs(node: onnx.NodeProto) -> list[str]:
    entry = TABLE.table.get((node.domain, node.op_type))
    if entry is None:
        return []
    if entry.constant_outputs is not None:
        return list(node.input)
    return [node.input[index] for index in entry.constant_inputs if index < len(node.input)]


def _initializers(model: onnx.ModelProto) -> set[str]:
    return {proto.name for proto in model.graph.initializer}


def _array(value: Any) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a tensor is needed, found {type(value).__name__}")
    return np.asarray(value)
