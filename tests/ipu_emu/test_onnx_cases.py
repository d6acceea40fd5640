"""ONNX's own operator cases and the models that PyTorch once exported for it.

``data/onnx_cases_skipped.txt`` has a line for each case that cannot pass, with the reason. A case that passes all the
same, or that is not among ONNX's any more, makes the test fail: take the line out.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.onnx_cases import check, exported_models, node_cases, run

SKIPPED = Path(__file__).parent / "data" / "onnx_cases_skipped.txt"


def skipped() -> dict[str, str]:
    """Reason by name."""
    lines = [line.split(maxsplit=1) for line in SKIPPED.read_text().splitlines() if line]
    return dict(lines)


def failure(case: object) -> str:
    """What goes wrong with a case; the empty text for nothing."""
    try:
        check(case.model, case.data_sets, case.rtol, case.atol)
    except (AssertionError, TypeError, popart.popart_exception) as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    return ""


@pytest.mark.timeout(280)
def test_every_operator_case_passes_or_says_why_not() -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        failures = {name: failure(case) for name, case in node_cases().items()}
    reasons = skipped()
    assert {name: text for name, text in failures.items() if text and name not in reasons} == {}
    assert {name for name in reasons if not failures.get(name)} == set(), "these lines are stale"
    assert len(failures) - len(reasons) > 1380


@pytest.mark.timeout(280)
def test_models_exported_by_pytorch() -> None:
    """Of opset 6, made by PyTorch for ONNX: one operator or module each, with its data."""
    failures = {}
    for name, (model, data) in exported_models().items():
        try:
            check(model, data, 1e-3, 1e-5)
        except (AssertionError, popart.popart_exception) as error:
            failures[name] = str(error)[:300]
    assert failures == {}


def test_the_largest_opset_is_that_of_the_package() -> None:
    newest = onnx.defs.onnx_opset_version()
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    for version, good in ((6, True), (newest, True), (5, False), (newest + 1, False)):
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        if good:
            assert run(model, {"x": np.zeros(2, np.float32)})["y"].tolist() == [1, 1]
            continue
        with pytest.raises(popart.popart_exception) as error:
            popart.Builder(model.SerializeToString())
        assert error.value.args[0] == (
            f"Encountered ONNX opset version {version}, Maximimum supported opset is {newest}, minimum 6 and "
            "default 10."
        )


@pytest.mark.parametrize("name", ["convolutions", "recurrent", "transformer"])
def test_models_exported_by_a_recent_pytorch(name: str) -> None:
    """PyTorch 2.13: the first two by the TorchScript exporter, the last by the one that replaced it (opset 20)."""
    folder = SKIPPED.parent
    model = onnx.load(folder / f"torch_{name}.onnx")
    data = np.load(folder / f"torch_{name}.npz")
    made = run(model, {model.graph.input[0].name: data["x"]})
    np.testing.assert_allclose(made[model.graph.output[0].name], data["y"], rtol=1e-4, atol=1e-6)
