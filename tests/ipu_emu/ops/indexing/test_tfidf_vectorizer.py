"""TF-IDF vectorizer: compared with ONNX's reference evaluator; ops on sequences and texts are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart

#: Lengths 1 to 3, two of each.
POOL = [1, 4, 1, 2, 2, 1, 1, 2, 1, 3, 3, 3]
COUNTS, INDEXES = [0, 2, 6], [5, 0, 1, 2, 4, 3]
WEIGHTS = [0.5, 2.0, 3.0, 0.25, 1.5, 4.0]


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weights", [[], WEIGHTS])
@pytest.mark.parametrize(("least", "most", "skip"), [(1, 1, 3), (1, 3, 0), (2, 3, 2), (3, 3, 1)])
def test_counts_are_those_of_onnx(mode: str, weights: list[float], least: int, most: int, skip: int) -> None:
    rows = np.random.default_rng(0).integers(1, 5, (3, 12)).astype(np.int32)
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [3, 12])
    y = builder.aiOnnx.tfidfvectorizer([x], most, skip, least, mode, COUNTS, INDEXES, POOL, [], weights)
    builder.addOutputTensor(y)
    assert builder.getTensorShape(y) == [3, 6]
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: rows}, anchors))
    model = onnx.load_model_from_string(builder.getModelProto())
    if not weights:  # the evaluator requires it
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("weights", [1.0] * 6))
    (expected,) = ReferenceEvaluator(model).run(None, {x: rows})
    np.testing.assert_array_equal(anchors[y], expected)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"mode": "TD"}, "mode 'TD'"),
        ({"ngram_indexes": [1, 2]}, "ngram_indexes has 2"),
        ({"weights": [1.0]}, "weights"),
    ],
)
def test_grams_that_do_not_fit_are_refused(changed: dict[str, Any], text: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [12])
    attributes: dict[str, Any] = {
        "max_gram_length": 3,
        "max_skip_count": 0,
        "min_gram_length": 1,
        "mode": "TF",
        "ngram_counts": COUNTS,
        "ngram_indexes": INDEXES,
        "pool_int64s": POOL,
    }
    y = builder.aiOnnx.tfidfvectorizer([x], **attributes | changed)
    device = popart.DeviceManager().createCpuDevice()
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)


@pytest.mark.parametrize(
    ("name", "inputs", "text"),
    [
        ("splittosequence", 1, "sequences of tensors"),
        ("sequenceempty", 0, "sequences of tensors"),
        ("stringnormalizer", 1, "strings"),
    ],
)
def test_types_that_devices_do_not_have_are_refused_by_name(name: str, inputs: int, text: str) -> None:
    builder = popart.Builder()
    method = getattr(builder.aiOnnxOpset11, name)
    operands = [[builder.addInputTensor("FLOAT", [2])]] if inputs else []
    with pytest.raises(popart.popart_exception, match=rf"devices have no {text}"):
        method(*operands)
