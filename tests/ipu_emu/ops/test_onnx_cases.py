"""ONNX's own operator cases, and the models that PyTorch exported for ONNX.

``onnx/data/onnx_cases_skipped.txt`` has a line for each case that cannot pass, with the reason. The test fails if a
listed case passes, or does not exist in ONNX: remove its line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.ops.cases.onnx_case_page import PAGE, SKIPPED, page, skipped
from tests.ipu_emu.ops.cases.onnx_cases import check, exported_models, node_cases, run

#: Batches of a case with random results.
TIMES = 400


def random_results(name: str) -> Callable[..., None] | None:
    """The check of a case with random results; None for all others."""
    if name.startswith("test_bernoulli"):
        return bernoulli
    return dropped if name in RANDOM_DROPOUTS else None


RANDOM_DROPOUTS = {f"test_training_dropout{kind}" for kind in ("", "_mask", "_default", "_default_mask")}


def likely(share: np.ndarray, probability: np.ndarray, count: int) -> bool:
    """Whether a fraction of ``count`` trials is within five standard deviations of the expected one."""
    return bool((abs(share - probability) <= 5 * np.sqrt(probability * (1 - probability) / count) + 1e-9).all())


def bernoulli(case: Any, outputs: dict[str, np.ndarray], x: np.ndarray) -> None:
    """The fraction of ones is ``x``, or that of zeros: ONNX's expansion has the comparison the other way round."""
    y = outputs["y"]
    assert y.dtype == case.data_sets[0][1][0].dtype
    assert set(np.unique(y)) <= {0, 1}
    assert likely(y.mean(0), 1 - x if "expanded" in case.name else x, TIMES)


def dropped(case: Any, outputs: dict[str, np.ndarray], x: np.ndarray, ratio: np.ndarray, _: np.ndarray) -> None:
    """Elements are kept with the probability of the ratio, and scaled; the mask marks them."""
    mask = outputs["y"] != 0
    np.testing.assert_allclose(outputs["y"], np.where(mask, x / (1 - ratio), 0), 1e-6)
    assert likely(mask.mean(0), 1 - ratio, TIMES)
    if "z" in outputs:
        np.testing.assert_array_equal(outputs["z"], mask)


def failure(case: Any) -> str:
    """The failure of a case; '' if it passes."""
    compare = random_results(case.name)
    try:
        if compare:
            inputs = case.data_sets[0][0]
            names = [info.name for info in case.model.graph.input]
            compare(case, run(case.model, dict(zip(names, inputs, strict=True)), TIMES), *inputs)
        else:
            check(case.model, case.data_sets, case.rtol, case.atol)
    except (AssertionError, TypeError, popart.popart_exception) as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    return ""


#: Tests that share the cases, so that several workers can run them.
PARTS = 8
#: Without --full, one of this number of cases is run in which an op is replaced by its ONNX function.
EXPANDED = 4


def names_in(part: int) -> list[str]:
    """Names of cases: in ``PARTS`` parts all ops themselves and some of their functions; then the other functions."""
    functions = sorted(name for name in node_cases() if name.endswith("_expanded"))
    others = sorted(set(functions) - set(functions[::EXPANDED]))
    return others if part == PARTS else sorted(set(node_cases()) - set(others))[part::PARTS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "part",
    [
        *(pytest.param(part, id=f"part-{part + 1}-of-{PARTS}") for part in range(PARTS)),
        pytest.param(PARTS, id="more-functions", marks=pytest.mark.full),
    ],
)
def test_every_operator_case_passes_or_says_why_not(part: int) -> None:
    """ONNX computes its cases in many seconds, so only the workers that run a part ask for them."""
    names = names_in(part)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        failures = {name: failure(node_cases()[name]) for name in names}
    reasons = skipped()
    assert {name: text for name, text in failures.items() if text and name not in reasons} == {}
    assert {name for name in names if name in reasons and not failures[name]} == set(), "these lines are stale"


def test_the_cases_that_are_skipped_are_cases_and_few() -> None:
    assert set(skipped()) - set(node_cases()) == set(), "these lines are stale"
    assert len(node_cases()) - len(skipped()) > 1540


def test_the_documentation_lists_what_is_not_run() -> None:
    """``python -m tests.ipu_emu.ops.cases.onnx_case_page`` writes the page."""
    assert PAGE.read_text() == page()


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
    outputs = run(model, {model.graph.input[0].name: data["x"]})
    np.testing.assert_allclose(outputs[model.graph.output[0].name], data["y"], rtol=1e-4, atol=1e-6)
