"""Inventory of ONNX: each attribute and optional input of each op that is read has a case off its default.

The rows are ONNX's: the schemas of all versions of the table's ops, and of the functions that ONNX defines by them.
The cases are ONNX's own, those of ``test_defaults_and_edges.py``, and those below.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from ipu_emu.onnx.proto_parts import nodes_of
from ipu_emu.ops import TABLE
from ipu_emu.ops.control.unsupported import REASONS
from tests.helpers.inventory_page import assert_counts
from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.ops.cases.onnx_argument_cases import REFUSED, SAID, OnnxCase, cases
from tests.ipu_emu.ops.cases.onnx_case_page import skipped
from tests.ipu_emu.ops.cases.onnx_cases import node_cases, run
from tests.ipu_emu.ops.test_defaults_and_edges import FAMILIES, KNOWN, cases_of

Row = tuple[str, str]
OLDEST = 6
PREVIEW = "ai.onnx.preview"
OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
#: Ops with several results in a case.
RESULTS = {"TopK": 2, "RNN": 2, "GRU": 2, "LSTM": 3, "Scan": 2}
#: Ops whose oldest version, which gives a sequence on demand, ONNX's reference does not have.
RECURRENT = ("RNN", "GRU", "LSTM")
#: Rows with tests of their own.
SHOWN = {
    "ops/cases/layer_cases.py": "RNN.activations RNN.activation_alpha RNN.activation_beta GRU.activations "
    "GRU.activation_alpha GRU.activation_beta LSTM.activations LSTM.activation_alpha LSTM.activation_beta",
    "popart/builder/test_subgraphs.py": "Scan.scan_input_axes Scan.scan_input_directions Scan.scan_output_directions "
    "Scan.scan_output_axes",
    "ops/control/test_loop_and_while.py": "Scan.directions",
    "ops/test_attributes.py": "RandomNormal.dtype RandomNormal.mean RandomNormal.scale RandomNormal.shape "
    "RandomNormalLike.mean RandomNormalLike.scale RandomNormalLike.dtype RandomUniform.dtype RandomUniform.high "
    "RandomUniform.low RandomUniform.shape RandomUniformLike.high RandomUniformLike.low RandomUniformLike.dtype "
    "Multinomial.dtype Multinomial.sample_size",
}


def schemas() -> Iterator[Any]:
    """The schemas of all versions of ops that a model can have."""
    newer: dict[Row, int] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: -s.since_version):
        key = schema.domain, schema.name
        read = key in TABLE.table or schema.has_function or schema.has_context_dependent_function
        if read and schema.name not in REASONS and not schema.deprecated and newer.get(key, 99) > OLDEST:
            yield schema
        newer[key] = schema.since_version


def rows() -> set[Row]:
    attributes = {(schema.name, name) for schema in schemas() for name in schema.attributes}
    return attributes | {(s.name, i.name) for s in schemas() for i in s.inputs if i.option == OPTIONAL}


def off_default(node: onnx.NodeProto, version: int) -> Iterator[Row]:
    """The attributes of a node that are off their defaults, and its optional inputs."""
    schema = defs.get_schema(node.op_type, version, node.domain)
    for attribute in node.attribute:
        default = schema.attributes[attribute.name].default_value
        if not default.type or helper.get_attribute_value(attribute) != helper.get_attribute_value(default):
            yield node.op_type, attribute.name
    for parameter, id in zip(schema.inputs, node.input, strict=False):
        if parameter.option == OPTIONAL and id:
            yield node.op_type, parameter.name


def of_model(model: onnx.ModelProto) -> set[Row]:
    versions = {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import}
    nodes = [(node, versions.get(node.domain, 1)) for node in nodes_of(model.graph)]
    known = [pair for pair in nodes if defs.has(pair[0].op_type, pair[1], pair[0].domain)]
    return {row for pair in known for row in off_default(*pair)}


def of_edges() -> set[Row]:
    """The attributes and inputs that the cases of the Builder's opsets have."""
    rows_of_cases = set[Row]()
    for family in [*FAMILIES, "without reference", "recurrent"]:
        for (name, arrays, options, opset), _ in cases_of(family):
            builder = popart.Builder(opsets={"ai.onnx": opset})
            ids = [operand(builder, array, index in KNOWN.get(name, ())) for index, array in enumerate(arrays)]
            names = getattr(builder.aiOnnx, name)(ids, **options)
            builder.addOutputTensor(names if isinstance(names, str) else names[0])
            rows_of_cases |= of_model(onnx.ModelProto.FromString(builder.getModelProto()))
    return rows_of_cases


def operand(builder: popart.Builder, array: Any, known: bool) -> str:
    if array is None:
        return ""
    return str(builder.aiOnnx.constant(array) if known else builder.addInputTensor(popart.TensorInfo(array)))


def model_of(op: str, opset: int, attributes: dict[str, Any], arrays: list[Any]) -> onnx.ModelProto:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(arrays)]
    count = 3 if attributes.get("training_mode") else RESULTS.get(op, 1)
    outputs = [f"y{index}" for index in range(count)]
    kinds = [(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in fed(arrays).items()]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=PREVIEW if op == "FlexAttention" else "", **attributes)],
        "case",
        [helper.make_tensor_value_info(*kind) for kind in kinds],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(PREVIEW, 1)])


def fed(arrays: list[Any]) -> dict[str, np.ndarray]:
    return {f"x{index}": array for index, array in enumerate(arrays) if array is not None}


def difference(case: OnnxCase) -> str:
    """The difference of a case from its function or from ONNX's reference; '' if they are equal."""
    op, opset, attributes, arrays, function = case
    model = model_of(op, opset, attributes, arrays)
    results = list(run(model, fed(arrays)).values())
    known = {name: value for name, value in attributes.items() if name != "output_sequence"}
    reference = model if op not in RECURRENT else model_of(op, 7, known, arrays)
    wanted = function(*arrays) if function else ReferenceEvaluator(reference).run(None, fed(arrays))
    for y, expected in zip(results, wanted if isinstance(wanted, list | tuple) else [wanted], strict=True):
        error = 2e-3 if y.dtype == np.float16 else 1e-5
        same = y.shape == np.shape(expected) and y.dtype == np.asarray(expected).dtype
        if not same or not np.allclose(y.astype(float), np.asarray(expected, float), error, 1e-6):
            return f"{op} {attributes}: {y.dtype} {y.tolist()}, expected {expected}"
    return ""


@cache
def refused_cases() -> set[Row]:
    """Rows of ONNX's cases whose element types, ops or forms of an op are refused."""
    names = [name for name, reason in skipped().items() if reason.endswith("not supported")]
    ops = {reason.split()[1] for reason in skipped().values() if reason.startswith("op ")}
    return {row for name in names for row in of_model(node_cases()[name].model)} | {r for r in rows() if r[0] in ops}


@cache
def honoured() -> set[Row]:
    passing = [case.model for name, case in node_cases().items() if name not in skipped()]
    own = [model_of(*case[:4]) for case in cases()]
    shown = {tuple(word.split(".")) for words in SHOWN.values() for word in words.split()}
    return {row for model in (*passing, *own) for row in of_model(model)} | of_edges() | shown


def test_every_attribute_and_optional_input_has_a_row() -> None:
    assert rows() - honoured() - refused_cases() - set(REFUSED) - set(SAID) == set()
    said, refused = rows() & set(SAID), rows() - honoured() - set(SAID)
    honoured_rows = len(rows() - said - refused)
    assert_counts("attributes and optional inputs of ONNX's ops", honoured_rows, len(refused), len(said))


@pytest.mark.parametrize("file", SHOWN)
def test_a_file_names_its_rows(file: str) -> None:
    text = (ROOT / "tests/ipu_emu" / file).read_text()
    names = [part for word in SHOWN[file].split() for part in word.split(".")]
    assert [
        name for name in names if name.lower() not in text.lower().replace("randomnormal{", "randomnormallike")
    ] == []


def test_arguments_off_their_defaults() -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        assert [text for case in cases() if (text := difference(case))] == []


@pytest.mark.parametrize("row", REFUSED, ids=".".join)
def test_an_attribute_that_is_refused_is_named(row: Row) -> None:
    opset, attributes, arrays, words = REFUSED[row]
    with pytest.raises(popart.popart_exception, match=re.escape(words)):
        run(model_of(row[0], opset, attributes, arrays), fed(arrays))


@pytest.mark.parametrize("row", SAID, ids=".".join)
def test_an_attribute_without_effect_is_named(row: Row) -> None:
    opset, attributes, arrays = SAID[row]
    with pytest.warns(UserWarning, match=f"The attribute {row[1]} of {row[0]} has no effect") as warned:
        run(model_of(row[0], opset, attributes, arrays), fed(arrays))
    assert len([w for w in warned if "no effect" in str(w.message)]) == 1
