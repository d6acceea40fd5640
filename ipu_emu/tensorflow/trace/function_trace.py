"""Function trace: the TensorFlow graph of a compiled function, and annotations for which TensorFlow has no op.

The ops of a trace are divided into sections, each of which is a program of its own for the device: a loop, a
pipeline, or the ops before, between and after them. An op with a **marker** stands for an op that TensorFlow does not
have: an element of an infeed, the sum of a gradient over micro-batches, a collective between replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.client import session
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.framework import dtypes, func_graph, ops, tensor_shape
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops, control_flow_ops, gen_script_ops, handle_data_util, variable_scope
from tensorflow.python.util import nest

from ipu_emu.tensorflow.trace.frontend_state import frontend_state, pushed

_MARKER = "_ipu_marker"


@dataclass(frozen=True)
class Marker:
    """The meaning of a marked op: its ``kind`` and the data for it."""

    kind: str
    data: Any = None


@dataclass(frozen=True)
class Carried:
    """A value carried by a loop: its tensors before the loop, and at the start and the end of an iteration."""

    initial: Any
    start: Any
    end: Any


@dataclass(frozen=True)
class PipelineSection:
    """A pipeline as a section: ``call`` has its arguments, ``ranges`` the ops of each function of each stage.

    ``ranges`` holds (first op, op after the last, stage, IPU). ``by_inputs``: ops outside all ranges belong to the
    last stage that they read, instead of the last stage.
    """

    call: Any
    ranges: tuple[tuple[int, int, int, int], ...]
    sharded: frozenset[int] = frozenset()
    by_inputs: bool = False


@dataclass
class Section:
    """Consecutive ops, from ``start`` up to but not including ``end``, that run ``batches`` times.

    ``kind`` is once, loop, while or pipeline. ``roots`` run in any case. ``accumulation`` micro-batches are summed by
    ``reduction`` before an update. ``updates`` are ranges of ops that belong to a weight update.
    """

    kind: str
    start: int
    end: int = -1
    batches: int = 1
    accumulation: int = 1
    reduction: str = "SUM"
    carried: list[Carried] = field(default_factory=list)
    roots: list[Any] = field(default_factory=list)
    updates: list[tuple[int, int]] = field(default_factory=list)
    condition: Any = None
    pipeline: PipelineSection | None = None
    count: Any = None
    offload: bool | None = None
    shard_states: bool = False
    outfeed: Any = None

    def holds(self, index: int) -> bool:
        """Whether the op with this index belongs to the section."""
        return self.start <= index < self.end

    def carry(self, initial: Sequence[Any], starts: Sequence[Any], ends: Sequence[Any]) -> None:
        """Carry values from one iteration to the next."""
        self.carried += [Carried(*entry) for entry in zip(initial, starts, ends, strict=True)]

    def divide(self) -> None:
        """Divide the iterations of a loop with gradient accumulation into batches of micro-batches."""
        count = 1 if self.kind == "pipeline" else self.accumulation
        if self.batches % count:
            raise ValueError(
                f"Detected a gradient accumulation operation with {count} number of mini batches inside a loop with "
                f"{self.batches} iterations. Please make sure that the number of iterations is a multiple of the "
                "number of mini batches."
            )
        self.batches //= count


class FunctionTrace:
    """A trace under construction."""

    def __init__(self, name: str, device: int | None = 0, owner: Any = None) -> None:
        self.graph: Any = func_graph.FuncGraph(name)
        #: None until a scope of a device is opened.
        self.device = device
        #: The traced object: traces of one function for several signatures have the same owner.
        self.owner = self if owner is None else owner
        self.markers: dict[str, Marker] = {}
        #: The markers of ops in branches.
        self.inner: dict[bytes, Marker] = {}
        self.sections: list[Section] = []
        self.open: list[Section] = []
        self.shards: list[tuple[int, int, tuple[int, ...]]] = []
        self.arguments: list[Any] = []
        #: Whether optimisers always apply the mean of gradients over replicas and mini-batches.
        self.reduces = False
        #: Whether an optimiser is applying gradients; it may call another optimiser.
        self.applying = False
        #: Whether the outermost loop of Python code over tensors is the loop of the program.
        self.loops = False
        #: The values of arguments while the function is traced, and the names of those that the trace depends on.
        self.argument_values: dict[str, NDArray[Any]] = {}
        self.settled: set[str] = set()
        #: The infeeds for iterators of ``tf.data``, by the id of the iterator.
        self.sources: dict[int, Any] = {}
        #: Whether an ``outside_compilation_scope`` is open.
        self.outside = False
        self._unnamed: dict[int, tuple[str, Any]] = {}

    # Ops

    def position(self) -> int:
        """The index of the next op."""
        return len(self.graph.get_operations())

    def mark(self, tensor: Any, kind: str, data: Any = None, name: str | None = None) -> Any:
        """Return ``tensor`` passed through an op that is marked."""
        marked = array_ops.identity(tensor, name=name or kind)
        self._note(marked.op, Marker(kind, data))
        return marked

    def _note(self, op: Any, marker: Marker) -> None:
        """Keep the marker of an op: in a branch of a condition by an attribute, as names there are not unique."""
        if op.graph is self.graph:
            self.markers[op.name] = marker
            return
        token = f"{marker.kind}:{len(self.inner)}".encode()
        self.inner[token] = marker
        op._set_attr(_MARKER, attr_value_pb2.AttrValue(s=token))

    def inner_marker(self, op: Any) -> Marker | None:
        """The marker of an op of a branch."""
        try:
            return self.inner.get(op.get_attr(_MARKER)) if self.inner else None
        except ValueError:
            return None

    def placeholder(self, dtype: Any, shape: Any, kind: str, data: Any = None, name: str | None = None) -> Any:
        """Return a new tensor whose value comes from outside of TensorFlow's graph."""
        tensor = array_ops.placeholder(dtype, shape, name=name or kind)
        self.markers[tensor.op.name] = Marker(kind, data)
        return tensor

    def element(self, queue: Any, spec: Any) -> Any:
        """The tensors, in the structure of ``spec``, of an element of ``queue``; each call takes another element."""
        use = self.position()
        flat = [
            self.placeholder(leaf.dtype, leaf.shape, "infeed", (queue, number, use), f"element_{number}")
            for number, leaf in enumerate(nest.flatten(spec))
        ]
        return nest.pack_sequence_as(spec, flat)

    def starts(self, initial: Sequence[Any]) -> list[Any]:
        """The tensors at the start of an iteration for the values that a loop carries."""
        return [self.placeholder(value.dtype, value.shape, "carried", None, "carried") for value in initial]

    def effect(self, tensors: Sequence[Any], kind: str, data: Any = None, name: str | None = None) -> Any:
        """Return a marked op without outputs that reads ``tensors``."""
        token = f"ipu:{kind}:{len(self.markers)}"
        with ops.name_scope(name or kind):
            gen_script_ops.py_func(input=list(tensors), token=token, Tout=[], name=kind)
        op = ops.get_default_graph().get_operations()[-1]
        self._note(op, Marker(kind, data))
        return op

    def several(self, tensors: Sequence[Any], kind: str, data: Any, like: Sequence[Any]) -> list[Any]:
        """Return the outs, of the types and shapes of ``like``, of an op that is marked."""
        token = f"ipu:{kind}:{len(self.markers)}"
        outs = gen_script_ops.py_func(input=list(tensors), token=token, Tout=[x.dtype for x in like], name=kind)
        for output, other in zip(outs, like, strict=True):
            output.set_shape(other.shape)
        self._note(outs[0].op, Marker(kind, data))
        return list(outs)

    def nothing(self, after: Sequence[Any], name: str) -> Any:
        """Return an op without effect that runs after others."""
        with ops.control_dependencies(list(after)):
            return control_flow_ops.no_op(name=name)

    def effects(self, start: int = 0) -> list[Any]:
        """The ops from ``start`` on that change variables."""
        return [
            op
            for op in self.graph.get_operations()[start:]
            if op.op_def.is_stateful and op.type != "ReadVariableOp" and any(is_resource(t) for t in op.inputs)
        ]

    # Sections

    @property
    def section(self) -> Section | None:
        """The innermost open section."""
        return self.open[-1] if self.open else None

    @contextmanager
    def in_section(self, section: Section) -> Iterator[Section]:
        """Collect the ops that are made in the ``with`` block in ``section``."""
        self.open.append(section)
        try:
            yield section
        finally:
            self.open.pop()
            section.end = self.position()
        self.sections.append(section)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Ops made in the ``with`` block belong to a weight update."""
        first = self.position()
        try:
            yield
        finally:
            if self.section is not None:
                self.section.updates.append((first, self.position()))

    def all_sections(self) -> list[Section]:
        """The sections in order, with those of the ops in between."""
        sections: list[Section] = []
        at = 0
        for section in sorted(self.sections, key=lambda entry: entry.start):
            if section.start > at:
                sections.append(Section("once", at, section.start))
            sections.append(section)
            at = section.end
        if self.position() > at or not sections:
            sections.append(Section("once", at, self.position()))
        return sections

    def shard_of(self, index: int) -> tuple[int, ...] | None:
        """The shards of the op with this index: those of the innermost ``ipu_shard``."""
        inner = [entry for entry in self.shards if entry[0] <= index < entry[1]]
        return min(inner, key=lambda entry: entry[1] - entry[0])[2] if inner else None

    # Building

    def call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Call ``function`` with placeholders for ``inputs``, tensors of the enclosing graph; return its result."""
        with pushed(frontend_state().traces, self), self.graph.as_default():
            scope = variable_scope.variable_scope(variable_scope.get_variable_scope(), use_resource=True)
            with scope, variable_scope.variable_creator_scope(self._create_variable):
                self.arguments = [self.graph.capture(tensor) for tensor in inputs]
                return function(*self.arguments)

    def returned(self, result: Any) -> tuple[list[Any], list[Any]]:
        """The tensors and the ops in the ``result`` of a function that was called."""
        tensors, operations = [], []
        for value in [] if result is None else nest.flatten(result):
            if isinstance(value, ops.Operation):
                operations.append(value)
            elif value is not None:
                with self.graph.as_default():
                    tensors.append(ops.convert_to_tensor(value))
        return tensors, operations

    def _create_variable(self, create: Callable[..., Any], **options: Any) -> Any:
        """Create a variable; an initial value that the function computes is computed outside of it."""
        initial = options.get("initial_value")
        if isinstance(initial, tensor_lib.Tensor) and getattr(initial, "graph", None) is self.graph:
            options["initial_value"] = self._lifted(initial)
        return create(**options)

    def _lifted(self, tensor: Any) -> Any:
        """``tensor`` computed in the enclosing graph; its value if that executes eagerly."""
        with ops.init_scope():
            if not context.executing_eagerly():
                return lift_to_graph.lift_to_graph([tensor], self.graph.outer_graph)[tensor]
        with ops.Graph().as_default() as graph:
            lifted = lift_to_graph.lift_to_graph([tensor], graph)[tensor]
            with session.Session(graph=graph) as alone:
                return alone.run(lifted)

    def captures(self) -> list[tuple[Any, Any]]:
        """Pairs of a tensor of the enclosing graph and its placeholder in the trace."""
        return list(self.graph.captures)

    def name_of(self, handle: Any) -> str:
        """The name of a variable: in eager execution, where it has none of its own, its number in this trace."""
        own = getattr(getattr(handle, "op", None), "name", None)
        return own or self._unnamed.setdefault(id(handle), (str(len(self._unnamed)), handle))[0]


def current_trace() -> FunctionTrace | None:
    """The trace that is being built, None outside of compiled functions."""
    traces = frontend_state().traces
    return traces[-1] if traces else None


def is_resource(tensor: Any) -> bool:
    """Whether ``tensor`` is the handle of a variable."""
    return isinstance(tensor, tensor_lib.Tensor) and tensor.dtype == dtypes.resource


def held_by(handle: Any) -> tuple[Any, Any]:
    """The type and the shape of the variable of a handle."""
    data = getattr(handle, "_handle_data", None) or handle_data_util.get_resource_handle_data(handle)
    (only,) = data.shape_and_type
    return dtypes.as_dtype(only.dtype), tensor_shape.TensorShape(only.shape)
