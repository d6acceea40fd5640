"""Assignments: the pipeline stage of every call of a layer in a model, in post-order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tensorflow.python.framework import func_graph, tensor_spec
from tensorflow.python.ops import array_ops
from tensorflow.python.util import nest
from tf_keras.src.engine import functional, sequential

from ipu_emu.tensorflow.keras.layer_calls import layer_calls
from ipu_emu.tensorflow.keras.pipeline_stages import forget_functions, set_stage, stage_of


class _Assignment:
    """The stage of a call of ``layer``."""

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        self._layer, self.pipeline_stage = layer, pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer."""
        return self._layer

    def __str__(self) -> str:
        layer, stage = self._layer, self.pipeline_stage
        return f"Layer: {layer.name} ({type(layer).__name__}) is assigned to pipeline stage: {stage}"


class SequentialLayerPipelineStageAssignment(_Assignment):
    """The stage of a layer of a Sequential model."""


class _CallAssignment(_Assignment):
    """The stage of the call ``node_index`` of ``layer``."""

    def __init__(
        self, layer: Any, node_index: int, inbound_layers: Sequence[Any] = (), pipeline_stage: int | None = None
    ) -> None:
        super().__init__(layer, pipeline_stage)
        self._node_index, self._inbound_layers = node_index, list(inbound_layers)

    @property
    def node_index(self) -> int:
        """The index of the call of the layer."""
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers that the call takes its inputs from."""
        return self._inbound_layers

    def __str__(self) -> str:
        return f"{super().__str__()}, call {self._node_index}"


class FunctionalLayerPipelineStageAssignment(_CallAssignment):
    """The stage of a call of a layer in a functional model."""


class ModelLayerPipelineStageAssignment(_CallAssignment):
    """The stage of a call of a layer in a subclassed model."""


def assignment_of(model: Any) -> list[Any]:
    """The current assignments of a model; raise ValueError for a subclassed model that was not built."""
    if isinstance(model, sequential.Sequential):
        return [SequentialLayerPipelineStageAssignment(layer, stage_of(layer)) for layer in model.layers]
    if isinstance(model, functional.Functional):
        return [
            FunctionalLayerPipelineStageAssignment(
                node.layer,
                node.layer._inbound_nodes.index(node),
                [parent.layer for parent in node.parent_nodes],
                _stage_of_node(node),
            )
            for node in nodes_of(model)
        ]
    chosen = model.__dict__.get("_ipu_stages", {})
    return [
        ModelLayerPipelineStageAssignment(layer, number, [], chosen.get((layer.name, number), stage_of(layer)))
        for layer, number in _calls_of(model)
    ]


def nodes_of(model: Any) -> list[Any]:
    """The calls of layers in a functional model in post-order, without its inputs."""
    nodes, _ = functional._build_map(model._nested_outputs)
    return [node for node in nodes if not node.is_input]


def _stage_of_node(node: Any) -> int | None:
    stage = stage_of(node)
    return stage_of(node.layer) if stage is None else stage


def _calls_of(model: Any) -> list[tuple[Any, int]]:
    """The layers that a subclassed model calls, in order, each with the number of the call."""
    specs = model._build_input_shape if model._saved_model_inputs_spec is None else None
    if model._saved_model_inputs_spec is None and specs is None:
        raise ValueError(
            f"The model {model.name} has not been built, so its layers are not known. Call it on a batch, or "
            "call build() with the shape of one, before its pipeline stages are assigned."
        )
    graph = func_graph.FuncGraph("calls")
    with graph.as_default(), layer_calls(model) as seen:
        if model._saved_model_inputs_spec is not None:
            inputs = nest.map_structure(
                lambda leaf: array_ops.placeholder(leaf.dtype, leaf.shape), model._saved_model_inputs_spec
            )
        else:
            spec = tensor_spec.TensorSpec(specs, model.compute_dtype)
            inputs = array_ops.placeholder(spec.dtype, spec.shape)
        model(inputs, training=False)
    return [(call.layer, call.number) for call in seen]


# Changing


def assign(model: Any, assignments: Any) -> None:
    """Set the stages of a model; raise ValueError for mistakes."""
    if not isinstance(assignments, list | tuple):
        raise ValueError("`pipeline_stage_assignment` needs to be a list.")
    if isinstance(model, sequential.Sequential):
        _assign_sequential(model, assignments)
        return
    current = assignment_of(model)
    kind = type(current[0]) if current else FunctionalLayerPipelineStageAssignment
    for entry in assignments:
        if not isinstance(entry, kind):
            raise ValueError(
                f"All elements of `pipeline_stage_assignment` are expected to be instances of {kind.__name__}, but "
                f"found {entry!r}."
            )
    _check_length(assignments, len(current), "layers in the graph")
    for entry, own in zip(assignments, current, strict=True):
        if (entry.layer, entry.node_index) != (own.layer, own.node_index):
            raise ValueError(
                "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph: "
                f"expected a call of {own.layer.name}, found one of {entry.layer.name}. Take the list from "
                "`get_pipeline_stage_assignment()` and change its stages only."
            )
        if entry.pipeline_stage is None:
            raise ValueError(
                f"Layer {entry.layer.name} with node index {entry.node_index} has not been assigned a pipeline stage."
            )
    check_order([entry.pipeline_stage for entry in assignments])
    if isinstance(model, functional.Functional):
        for node, entry in zip(nodes_of(model), assignments, strict=True):
            set_stage(node, entry.pipeline_stage)
    else:
        model.__dict__["_ipu_stages"] = {
            (entry.layer.name, entry.node_index): entry.pipeline_stage for entry in assignments
        }
    forget_functions(model)


def _assign_sequential(model: Any, assignments: Sequence[Any]) -> None:
    _check_length(assignments, len(model.layers), "layers in the model")
    stages: list[Any] = [entry.pipeline_stage if isinstance(entry, _Assignment) else entry for entry in assignments]
    if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in stages):
        raise ValueError("All elements of `pipeline_stage_assignment` must be integers, one stage for each layer.")
    if stages and stages[0] != 0:
        raise ValueError(f"The first pipeline stage in `pipeline_stage_assignment` must be 0, but it is {stages[0]}.")
    for before, after in pairwise(stages):
        if after not in (before, before + 1):
            raise ValueError(
                f"Each stage in `pipeline_stage_assignment` must be that of the layer before or the next one, but "
                f"{after} follows {before}."
            )
    for layer, stage in zip(model.layers, stages, strict=True):
        set_stage(layer, stage)
    forget_functions(model)


def _check_length(assignments: Sequence[Any], count: int, of_what: str) -> None:
    if len(assignments) != count:
        raise ValueError(
            f"The length of the provided `pipeline_stage_assignment` ({len(assignments)}) does not match the number "
            f"of {of_what} ({count}). Each layer needs one stage."
        )


def check_order(stages: Sequence[int]) -> None:
    """Raise RuntimeError for stages without a layer."""
    highest = max(stages, default=0)
    empty = [stage for stage in range(highest) if stage not in stages]
    if empty:
        raise RuntimeError(
            "All stages in a pipeline must have at lease one layer assigned to them. The highest stage with an "
            f"assignment is stage {highest}, however the preceeding stages {empty} had no assignments."
        )


def check_complete(model: Any, assignments: Sequence[Any]) -> None:
    """Raise ValueError unless every layer has a stage, and none reads a later stage."""
    missing = [entry.layer.name for entry in assignments if entry.pipeline_stage is None]
    if missing:
        raise ValueError(
            "All layers of a pipelined model must have an associated pipeline stage. However, "
            f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} none."
        )
    check_order([entry.pipeline_stage for entry in assignments])
    if not isinstance(model, functional.Functional) or isinstance(model, sequential.Sequential):
        return
    stages = {id(node): entry.pipeline_stage for node, entry in zip(nodes_of(model), assignments, strict=True)}
    for node in nodes_of(model):
        for parent in node.parent_nodes:
            if stages.get(id(parent), 0) > stages[id(node)]:
                raise ValueError(
                    f"Layer {node.layer.name} in pipeline stage {stages[id(node)]} has a dependency from a pipeline "
                    f"stage which has not yet been executed. It reads {parent.layer.name} of stage "
                    f"{stages[id(parent)]}."
                )


def reset(model: Any) -> None:
    """Remove all assignments of stages."""
    for layer in model._flatten_layers(include_self=False, recursive=False):
        set_stage(layer, None)
        for node in layer._inbound_nodes:
            set_stage(node, None)
    model.__dict__.pop("_ipu_stages", None)
    forget_functions(model)


def summary(model: Any, line_length: int | None, print_fn: Any) -> None:
    """Print a line for each call of a layer, with its stage."""
    write = print if print_fn is None else print_fn
    width = line_length or 80
    rows = [("Layer (type) (node index)", "Pipeline stage")]
    for entry in assignment_of(model):
        index = f" ({entry.node_index})" if isinstance(entry, _CallAssignment) else ""
        stage = "-" if entry.pipeline_stage is None else str(entry.pipeline_stage)
        rows.append((f"{entry.layer.name} ({type(entry.layer).__name__}){index}", stage))
    write(f'Model: "{model.name}"')
    write("_" * width)
    for number, (left, right) in enumerate(rows):
        write(f"{left[: width - 17]:<{width - 16}}{right:<16}".rstrip())
        write("=" * width if number == 0 else "_" * width)
