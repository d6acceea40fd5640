"""Attributes of nodes: placement, tuning and the user's own, for one node or for all in a context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart

VECTOR = popart.TensorInfo("FLOAT", [2])


def test_annotations_of_nodes() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    (checkpoint,) = builder.checkpointOutput([x])
    assert (checkpoint, builder.getInt64NodeAttribute("__recompute_output_in_backward_pass", {checkpoint})) == (
        "Identity:0",
        1,
    )
    with builder.commGroup(popart.CommGroupType.Consecutive, 2), builder.executionPhase(3):
        y = builder.aiOnnx.exp([x])
        assert builder.getExecutionPhase() == 3
    assert builder.getInt64VectorNodeAttribute("__collectiveCommGroup", {y}) == [1, 2]
    assert (builder.hasExecutionPhase(), builder.hasExecutionPhase(y), builder.getExecutionPhase(y)) == (
        False,
        True,
        3,
    )
    builder.recomputeOutput(y, popart.RecomputeType.Recompute)
    assert builder.getRecomputeOutputInBackwardPass(y)
    with builder.outputTensorLocation(popart.TensorLocation(popart.TensorStorage.OffChip)):
        z = builder.aiOnnx.exp([y])
    assert builder.getInt64VectorNodeAttribute("__output_tensor_location", {z})[0] == int(
        popart.TensorStorage.OffChip
    )
    builder.setPartialsType(z, "HALF")
    builder.setAvailableMemoryProportion(z, 0.5)
    assert (builder.getPartialsType(z), builder.getPartialsType(y)) == ("HALF", "FLOAT")
    assert builder.getFloatNodeAttribute("__available_memory", {z}) == 0.5
    builder.excludePatterns(z, ["InPlace"])
    assert builder.getStringVectorNodeAttribute("__exclude_patterns", {z}) == ["InPlace"]
    builder.addOutputTensor(z)
    again = popart.Builder(builder.getModelProto())
    assert again.getPartialsType(z) == "HALF"
    assert not again.hasVirtualGraph()


def test_contexts_put_attributes_on_nodes() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(VECTOR)
    with builder.virtualGraph(1), builder.pipelineStage(2):
        a = builder.aiOnnx.exp([x])
        assert (builder.getVirtualGraph(), builder.getPipelineStage()) == (1, 2)
        with builder.virtualGraph(3):
            b = builder.aiOnnx.exp([x])
        assert builder.getVirtualGraph() == 1
    assert not builder.hasVirtualGraph()
    assert builder.getInt64NodeAttribute("__ipu_number", {a}) == 1
    assert builder.getInt64NodeAttribute("__ipu_number", {b}) == 3
    assert builder.getInt64NodeAttribute("__pipeline_stage", {b}) == 2
    c = builder.aiOnnx.exp([x])
    builder.virtualGraph(c, 5)
    assert builder.getInt64NodeAttribute("__ipu_number", {c}) == 5


def calls(builder: Any, y: str) -> dict[str, Any]:
    return {
        "Pipeline stage not set in current scope.": builder.getPipelineStage,
        "Virtual graph not set in current scope.": builder.getVirtualGraph,
        "Execution phase not set in current scope.": builder.getExecutionPhase,
        "Node already has attribute axis.": lambda: builder.addNodeAttribute("axis", 3, {y}),
        "Node does not have an attribute no.": lambda: builder.getInt64NodeAttribute("no", {y}),
        "Attribute axis is not an integer vector.": lambda: builder.getInt64VectorNodeAttribute("axis", {y}),
        "Attribute axis is not a float.": lambda: builder.getFloatNodeAttribute("axis", {y}),
        "Attribute axis is not a float vector.": lambda: builder.getFloatVectorNodeAttribute("axis", {y}),
        "Attribute axis is not a string.": lambda: builder.getStringNodeAttribute("axis", {y}),
        "Attribute word is not an integer.": lambda: builder.getInt64NodeAttribute("word", {y}),
        "Cannot remove attribute no as it does not exist.": lambda: builder.removeNodeAttribute("no", {y}),
        "Could not find a node with outputs z. Must specify all outputs of a node": (
            lambda: builder.nodeHasAttribute("axis", {"z"})
        ),
        "Unsupported data type for initialized data (DOUBLE)": (
            lambda: builder.addInitializedInputTensor(np.zeros(2))
        ),
        "Can not add untyped tensors to the top-level graph. Use Builder::addInputTensor(const TensorInfo "
        "&tensorInfo, const std::string &debugPrefix) instead.": builder.addUntypedInputTensor,
    }


@pytest.mark.parametrize("text", list(calls(popart.Builder(), "")))
def test_errors(text: str) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.softmax([builder.addInputTensor(VECTOR)], 0)
    builder.addNodeAttribute("word", "abc", {y})
    with pytest.raises(popart.popart_exception) as error:
        calls(builder, y)[text]()
    assert error.value.args[0] == text


@pytest.mark.parametrize("name", ["virtualGraph", "pipelineStage", "executionPhase"])
def test_a_place_is_an_integer(name: str) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.exp([builder.addInputTensor(VECTOR)])
    place = getattr(builder, name)
    for wrong in ("a", 1.0, None, True, [1]):
        for args in ((wrong,), (y, wrong), ({y}, wrong)):
            with pytest.raises(popart.popart_exception) as error:
                place(*args)
            assert error.value.args[0] == f"{name} is {wrong!r}; it must be an integer"
    with pytest.raises(TypeError, match="integer"):
        place()
    place(y, np.int32(2))
    assert getattr(builder, f"get{name[0].upper()}{name[1:]}")(y) == 2
    with pytest.raises(TypeError, match="groupSize of commGroup is 'a'; it must be an integer"):
        builder.commGroup(popart.CommGroupType.Consecutive, "a")


def test_attributes_can_be_added_and_removed() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.softmax([builder.addInputTensor(VECTOR)], 0)
    builder.addNodeAttribute("extra", [1.5, 2.5], {y})
    assert builder.getFloatVectorNodeAttribute("extra", {y}) == [1.5, 2.5]
    assert builder.getAllNodeAttributeNames({y}) == ["axis", "extra", "__debug_info_id"]
    builder.removeNodeAttribute("extra", {y})
    assert not builder.nodeHasAttribute("extra", {y})


def test_attributes_may_be_numbers_of_numpy() -> None:
    builder = popart.Builder()
    with builder.virtualGraph(np.int64(1)):
        y = builder.aiOnnx.exp([builder.addInputTensor(VECTOR)])
    builder.addNodeAttribute("one", np.int64(3), {y})
    builder.addNodeAttribute("some", (np.int32(1), 2), {y})
    builder.addNodeAttribute("real", np.float32(0.5), {y})
    assert (builder.getVirtualGraph(y), builder.getInt64NodeAttribute("one", {y})) == (1, 3)
    assert builder.getInt64VectorNodeAttribute("some", {y}) == [1, 2]
    assert builder.getFloatNodeAttribute("real", {y}) == 0.5
