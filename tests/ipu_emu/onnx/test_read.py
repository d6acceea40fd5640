"""Reading of a model: the graph that every front end gets from an ONNX file, without a session."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from ipu_emu.onnx.read import read


def model() -> onnx.ModelProto:
    """The index of the largest element of a sum, of which each replica has a part; ONNX makes it an INT64."""
    nodes = [
        helper.make_node("ReplicatedReduceScatter", ["x"], ["part"], domain="ai.graphcore"),
        helper.make_node("ArgMax", ["part"], ["best"], axis=0, keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    graph = helper.make_graph(nodes, "", [x], [helper.make_tensor_value_info("best", TensorProto.INT64, [])])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 10), helper.make_opsetid("ai.graphcore", 1)]
    )


@pytest.mark.parametrize("replicas", [1, 4])
def test_shapes_follow_from_the_number_of_replicas(replicas: int) -> None:
    assert read(model(), replicas=replicas).graph.tensor("part").nelms == 8 // replicas


@pytest.mark.parametrize(("supported", "dtype"), [(True, "INT32"), (False, "INT64")])
def test_integers_have_the_width_that_ipus_have(supported: bool, dtype: str) -> None:
    assert read(model(), supported_types=supported).graph.tensor("best").dtype.name == dtype
