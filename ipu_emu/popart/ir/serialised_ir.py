"""Serialised IR: the graph of a step as JSON, with PopART's names, after PopART's transforms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, PIPELINE_STAGE, RECOMPUTE
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.recomputation import RECOMPUTED
from ipu_emu.compiler.pipeline import CompileState, pass_named, run_passes
from ipu_emu.compiler.placement.ipu_copies import COPY
from ipu_emu.compiler.rewriting.expansion import expanded
from ipu_emu.compiler.rewriting.pruning import prune
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.graph import Graph, Op, Role, StepPhase, original_of
from ipu_emu.popart.ir.called_graphs import CONTROL, Bodies, called_graphs
from ipu_emu.popart.ir.elementary_ops import elementary
from ipu_emu.popart.ir.inplace import work_in_place
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp
from ipu_emu.popart.ir.outlining import outlined
from ipu_emu.popart.ir.stashes import add_host_copies, add_stashes

#: The last pass that is run: the graph then has the ops of PopART's IR.
_LAST_PASS = "insert-ipu-copies"
_MAIN = "maingraph"
#: Names of graphs that PopART generates.
_UNNAMED = ("", "ipu_emu", "BuilderGraph_")
_OWN = (IPU_NUMBER, PIPELINE_STAGE, EXECUTION_PHASE, RECOMPUTE)
_AGAIN = 2
_SERIAL = "__serialize_matmul"
_SOFTMAX_GRADIENT, _FUSED_LOSS = "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect"


@dataclass(frozen=True)
class IrView:
    """The options of a session that determine what its printed IR contains."""

    name: str = ""
    placed: bool = False
    pipelined: bool = False
    explicit: bool = False
    explicit_recomputation: bool = False
    host_copies: bool = False
    phased: bool = False
    accumulates: bool = False
    in_place: bool = True
    outline_threshold: float | None = None


def serialised(state: CompileState, view: IrView, model: Graph) -> str:
    """Return the IR of a step as JSON: ``{graph: [op, ...]}`` in the order of the schedule; all values are strings.

    ``model`` is the graph that ``state`` came from; its calls, branches and loops are ops with graphs of their own.
    """
    state = replace(state, options=replace(state.options, fuse_elementwise=False))
    if state.options.training is None and any(op.type in CONTROL for op in model.ops):
        state = _with_control_flow(state, model)
    final = run_passes(state, stop_after=_LAST_PASS)
    graphs = _Conversion(final, view, model).graphs()
    return json.dumps({name: [_described(graph, op, view) for op in ops] for name, (graph, ops) in graphs.items()})


def _with_control_flow(state: CompileState, model: Graph) -> CompileState:
    """The state with the graph of the model in which calls, branches and loops have not been replaced."""
    first = CompileState(model, state.options)
    if pass_named("assign-ipus").applies(state.options):
        first = pass_named("assign-ipus").run(replace(first, graph=model.copy()))
    graph = expanded(first.graph, CONTROL)
    prune(graph, [anchor.tensor for anchor in state.anchors])
    return replace(state, graph=graph)


class _Conversion:
    def __init__(self, state: CompileState, view: IrView, model: Graph) -> None:
        self.state, self.view, self.source, self.model = state, view, state.graph, model
        self.graph = IrGraph(state.graph, [anchor.tensor for anchor in state.anchors])

    def graphs(self) -> dict[str, tuple[IrGraph, Sequence[IrOp]]]:
        graph, view = self.graph, self.view
        serial = {op.outputs[0]: op.attributes.get(_SERIAL) for op in self.source.ops if op.type == "MatMul"}
        for op in self.source.ops:
            of = next((id[len(GRADIENT) :] for id in op.inputs if id.startswith(GRADIENT)), "")
            divided = op.type.startswith("MatMul") and op.phase is StepPhase.BACKWARD and serial.get(of)
            self.add(replace(op, attributes={**op.attributes, _SERIAL: serial[of]}) if divided else op)
        self.mark_recomputed()
        called = called_graphs(graph, self.model) if self.state.options.training is not None else {}
        self.drop_identities()
        self.fuse_losses()
        self.name_copies()
        self.add_reductions()
        if view.host_copies:
            add_host_copies(graph)
        if view.pipelined and self.state.options.training is not None:
            add_stashes(graph, explicit=view.explicit)
        self.place_copies()
        if view.in_place:
            work_in_place(graph)
        bodies = called | self.bodies()
        calls = {} if view.outline_threshold is None else outlined(graph, view.outline_threshold)
        main = _MAIN if view.name in _UNNAMED or "BuilderGraph_" in view.name else view.name
        return {main: (graph, graph.ops)} | bodies | {name: (graph, ops) for name, ops in calls.items()}

    def add(self, op: Op) -> None:
        node = IrOp(
            op.type,
            list(op.inputs),
            list(op.outputs),
            {key: value for key, value in op.attributes.items() if key not in _OWN},
            op.name,
            op.phase,
            op.place.ipu,
            self.state.stages.of(op) if self.view.pipelined else 0,
            self.context(op),
            source=op,
        )
        ops = elementary(self.graph, node)
        self.graph.ops += ops
        for gradient in self.state.gradients:
            if gradient.part in op.outputs and gradient.total != gradient.part and gradient.weight:
                own = gradient.joins or gradient.total
                total = f"Accl___{gradient.weight}" if own.startswith("Combined") else own
                self.graph.tensors.setdefault(total, replace(self.graph.tensors[gradient.total], id=total))
                updated = self.graph.new(f"Updated___{total}", self.graph.tensors[total])
                self.graph.ops.append(node.like("Accumulate", [total, gradient.part], [updated], type="Add"))

    def context(self, op: Op) -> str:
        return "AccumulateOuterFragment" if op.phase is StepPhase.UPDATE and self.view.accumulates else "Normal"

    def mark_recomputed(self) -> None:
        """Without explicit recomputation, mark the original ops as recomputed and drop their copies."""
        graph, kind = self.graph, self.state.options.recomputation
        repeated = {id for op in graph.ops for id in op.outputs if id.startswith(RECOMPUTED)}
        again = {id.removeprefix(RECOMPUTED).partition(f"/{_AGAIN}")[0] for id in repeated}
        training = self.state.options.training is not None
        needed = {id for op in graph.ops if op.phase is StepPhase.BACKWARD for id in op.inputs}
        for op in graph.ops:
            annotated = op.source is not None and op.source.attributes.get(RECOMPUTE) == _AGAIN
            by_kind = kind is Recomputation.ALL or (kind is Recomputation.STANDARD and not needed & set(op.outputs))
            if op.phase is StepPhase.FORWARD and training and op.type != COPY:
                if annotated or by_kind or again & set(op.outputs):
                    op.recompute = "Recompute"
            elif repeated & set(op.outputs):
                op.recompute = "Recomputed"
        if not self.view.explicit_recomputation and repeated:
            graph.ops = [op for op in graph.ops if not repeated & set(op.outputs)]
            graph.rename({id: id.removeprefix(RECOMPUTED) for id in repeated})

    def drop_identities(self) -> None:
        """Remove Identities, except those that make anchors or are excluded from the patterns that remove them."""
        removed = {}
        for op in self.graph.ops:
            excluded = op.attributes.get("__exclude_patterns")
            if op.type == "Identity" or self.does_nothing(op):
                if op.outputs[0] in self.graph.anchors or excluded:
                    op.type = "Identity"
                    continue
                removed[op.outputs[0]] = op.inputs[0]
        self.graph.without(removed)

    def does_nothing(self, op: IrOp) -> bool:
        if op.type not in ("Reshape", "Cast", "Concat", "Slice", "Pad", "Dropout") or len(op.inputs) != 1:
            return False
        a, b = self.graph.tensors[op.inputs[0]], self.graph.tensors[op.outputs[0]]
        same = (a.dtype, a.shape) == (b.dtype, b.shape)
        return (
            same and op.phase is StepPhase.FORWARD and (op.type != "Dropout" or self.state.options.training is None)
        )

    def fuse_losses(self) -> None:
        """Fuse the gradients of softmax and of negative log-likelihood to one op, if both are on one IPU."""
        graph = self.graph
        for gradient in [op for op in graph.ops if op.type == _SOFTMAX_GRADIENT]:
            labels = gradient.inputs[-1]
            loss = next((op for op in graph.ops if op.type == "Nll" and labels in op.inputs), None)
            if loss is not None and (loss.ipu, loss.stage) == (gradient.ipu, gradient.stage):
                gradient.type, gradient.outputs = _FUSED_LOSS, [*loss.outputs, *gradient.outputs]
                graph.ops.remove(loss)

    def name_copies(self) -> None:
        """Name the copy of tensor t on virtual graph v ``t_cv``."""
        copies = [id for op in self.graph.ops for id in (*op.inputs, *op.outputs) if original_of(id) != id]
        numbers = {id: id[len(original_of(id)) + len("/ipu") :] for id in copies}
        self.graph.rename({id: f"{original_of(id)}_c{number}" for id, number in numbers.items()})

    def place_copies(self) -> None:
        """Give each copy the IPU and the stage of the tensor that it copies."""
        home: dict[str, IrOp] = {}
        for op in self.graph.ops:
            if op.type == COPY:
                op.attributes |= {"__sourceIPU": (home.get(op.inputs[0]) or op).ipu, "__destIPU": op.ipu}
            home |= dict.fromkeys(op.outputs, op)
        for op in self.graph.ops:
            if op.type == COPY and op.inputs[0] in home:
                op.ipu, op.stage = home[op.inputs[0]].ipu, home[op.inputs[0]].stage

    def add_reductions(self) -> None:
        """Add an all-reduce for each gradient before the updates."""
        graph, state = self.graph, self.state
        if state.options.replicas == 1:
            return
        first = next((i for i, op in enumerate(graph.ops) if op.phase is StepPhase.UPDATE), len(graph.ops))
        ops, names = [], {}
        updates = graph.ops[first:]
        for gradient in state.gradients:
            if updates and gradient.weight and gradient.total in graph.tensors and not gradient.scattered:
                reduced = graph.new(f"ReplicatedAllReduceInplace___{gradient.total}", graph.tensors[gradient.total])
                at = next((op for op in updates if gradient.weight in op.inputs), updates[0])
                ops.append(replace(at.like("ReplicatedAllReduceInplace", [gradient.total], [reduced]), name=""))
                names[gradient.total] = reduced
        for op in graph.ops[first:]:
            op.inputs = [names.get(id, id) for id in op.inputs]
        graph.ops[first:first] = ops

    def bodies(self) -> Bodies:
        """Return the graphs of loops and branches by the names that their ops refer to."""
        bodies: Bodies = {}
        for op in self.graph.ops:
            for key, body in list(op.attributes.items()):
                if isinstance(body, Graph):
                    name = f"{op.type}_{key}({len(bodies)})"
                    op.attributes[key] = name
                    bodies[name] = self.body(body)
        return bodies

    def body(self, source: Graph) -> tuple[IrGraph, Sequence[IrOp]]:
        graph = IrGraph(source, source.outputs)
        for op in source.ops:
            if all(source.tensors[id].role is Role.CONSTANT for id in op.outputs if id in source.tensors):
                continue
            attributes = {key: value for key, value in op.attributes.items() if not isinstance(value, Graph)}
            node = IrOp(op.type, list(op.inputs), list(op.outputs), attributes, op.name, context="Subgraph")
            graph.ops += elementary(graph, node)
        return graph, graph.ops


def _described(graph: IrGraph, op: IrOp, view: IrView) -> dict[str, Any]:
    return {
        "type": op.type,
        "name": op.name,
        "inputs": [_tensor(graph, id, index) for index, id in enumerate(op.inputs) if id],
        "outputs": [{"name": id, "index": str(index)} for index, id in enumerate(op.outputs) if id],
        "attributes": _attributes(op, view),
    }


def _tensor(graph: IrGraph, id: str, index: int) -> dict[str, str]:
    tensor = graph.tensors[id]
    return {"name": id, "shape": _text(list(tensor.shape)), "type": tensor.dtype.name, "index": str(index)}


def _attributes(op: IrOp, view: IrView) -> dict[str, str]:
    shown = {name: _text(value) for name, value in op.attributes.items() if value is not None}
    shown["recompute"] = "YES" if op.recompute == "Recompute" else "NO"
    attributes: Mapping[str, Any] = op.source.attributes if op.source is not None else {}
    if view.placed:
        shown[IPU_NUMBER] = str(op.ipu)
    if view.pipelined and op.phase is not StepPhase.UPDATE:
        shown[PIPELINE_STAGE] = str(op.stage)
    if view.phased and EXECUTION_PHASE in attributes:
        shown[EXECUTION_PHASE] = str(attributes[EXECUTION_PHASE])
    priority = attributes.get("__schedule_priority", 0.0)
    return shown | {
        "__execution_context": op.context,
        "scope": _scope(op),
        "recomputetype": op.recompute,
        "schedulePriority": _text(float(priority)),
    }


def _scope(op: IrOp) -> str:
    """The name scopes in which the Builder made the op, from the id of its first output."""
    id = op.source.outputs[0] if op.source is not None and op.source.outputs else ""
    before, colon, _ = id.partition(":")
    return before.rpartition("/")[0] if colon else ""


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        return f"{float(value):.6f}"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return f"[{' '.join(_text(item) for item in value)}]"
    return str(value)
