"""Module trace: a module as a graph: its inputs, parameters, buffers, outputs and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.graph.op import GRAPHCORE, Op
from ipu_emu.ops import Value, append
from ipu_emu.poptorch.blocks import ACTIVE, BlockLog, BlockUse
from ipu_emu.poptorch.dtypes import as_numpy, device_dtype
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.graph_writer import BLOCK, GraphWriter
from ipu_emu.poptorch.tracing.argument_parsers import PARSERS
from ipu_emu.poptorch.tracing.current_trace import CURRENT
from ipu_emu.poptorch.tracing.host_state import HostState
from ipu_emu.poptorch.tracing.intercepted_functions import Functions, check_hooks, functions_replaced
from ipu_emu.poptorch.tracing.recorder import OpRecorder
from ipu_emu.poptorch.tracing.replica_grouping import groups_of, without_groups
from ipu_emu.poptorch.tracing.second_recording import check_same, other_data, other_state, random_states, seeds
from ipu_emu.poptorch.tracing.storages import Storages
from popdist_py.messages.user_warning import warn_user
from popdist_py.trace import Category, span

#: The ops that leave values as they are.
_SAME_VALUES = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


@dataclass
class ModuleTrace:
    """A traced module; ``outputs`` are tensor ids in order, or host tensors that are returned unchanged.

    ``parameters``: whether each is trained. ``changed_inputs`` maps an input that is changed in place to the id of
    its new value; ``overlaps`` lists "input" or "output" if it overlaps with compute.
    """

    graph: Graph
    inputs: list[str]
    outputs: list[Any]
    structure: Any
    loss: str | None
    parameters: dict[str, bool]
    changed_inputs: dict[int, str] = field(default_factory=dict)
    blocks: list[BlockUse] = field(default_factory=list)
    changed_buffers: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)

    def negate_loss(self) -> None:
        """Train on the negated loss, so that the loss itself grows."""
        assert self.loss is not None
        placed = self.graph.producers()[self.loss].attributes[BLOCK]
        loss, self.loss = self.loss, f"{self.loss}/negated"
        append(self.graph, Op("Neg", (loss,), (self.loss,), {BLOCK: placed}, "", 13))


class _Tracer:
    """One recording; ``changing`` are the buffers that forward is known to change."""

    def __init__(
        self,
        module: torch.nn.Module,
        changing: frozenset[str],
        *,
        scoped: bool,
        replicas: tuple[int, int],
        earlier: Storages | None = None,
    ) -> None:
        self.module, self.changing, self.replicas = module, changing, replicas
        self.changed: frozenset[str] = frozenset()
        self.parts: dict[int, torch.nn.Parameter] = {}
        self.writer = GraphWriter(scoped=scoped)
        self.storages = Storages(self.writer, earlier)
        self.log = BlockLog()
        self.recorder = OpRecorder(self.writer, self.storages, self.log)
        self.composite = self.recorder.composite
        self.losses: list[str] = []
        self.variables: dict[str, Any] = {}
        self.training, self.multi_conv = False, False
        self.overlaps: list[str] = []
        self.outer_scopes: list[str] = []

    def run(
        self, inputs: Sequence[torch.Tensor], call: Callable[[Sequence[torch.Tensor]], Any], training: bool
    ) -> ModuleTrace:
        self.training = training
        shadows = [self._shadow(number, tensor) for number, tensor in enumerate(inputs)]
        self._add_variables()
        if training:
            check_hooks(self.module)
        ids = [f"input/{number}" for number in range(len(inputs))]
        with without_groups(self.module, self.parts), HostState(self.module) as state, self._modes():
            out = call(shadows)
        self.changed = state.changed
        self._refuse_unknown()
        self.writer.scope = ""
        self.writer.block = self.log.current if self.log.current is not None else len(self.log.uses) - 1
        self.recorder.paused = True
        leaves: list[Any] = []
        structure = _described(out, leaves)
        outputs = [self._output(leaf) for leaf in leaves]
        loss = self._loss() if training else None
        changed = {
            number: self._own(self.storages.read(shadow)).tensor.id
            for number, shadow in enumerate(shadows)
            if self.storages.changes(shadow)
        }
        changed_buffers = self._write_buffers()
        parameters = {
            name: bool(tensor.requires_grad)
            for name, tensor in self.variables.items()
            if isinstance(tensor, torch.nn.Parameter) and name in self.writer.graph.tensors
        }
        return ModuleTrace(
            self.writer.graph, ids, outputs, structure, loss, parameters, changed, self.log.uses, changed_buffers,
            self.overlaps,
        )  # fmt: skip

    # Preparation

    def _shadow(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            raise Error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
        shadow = tensor.detach().clone(memory_format=torch.contiguous_format)
        if shadow.dtype in (torch.float64, torch.bfloat16):
            shadow = shadow.float()
        input_tensor = Tensor(f"input/{number}", device_dtype(shadow.dtype), tuple(shadow.shape), Role.INPUT)
        self.storages.set(shadow, self.writer.value(self.writer.graph.add(input_tensor)))
        return shadow

    def _add_variables(self) -> None:
        seen: set[int] = set()
        named = [
            *self.module.named_parameters(remove_duplicate=False),
            *self.module.named_buffers(remove_duplicate=False),
        ]
        for name, tensor in named:
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if (not tensor.is_floating_point() and name not in self.changing) or not tensor.numel():
                continue  # integers that do not change are constants
            local, processes = self.replicas
            groups = groups_of(tensor, name, replicas=local * processes, processes=processes)
            shape = tuple(tensor.shape) if groups is None else tuple(tensor.shape[1:])
            variable = Tensor(name, device_dtype(tensor.dtype), shape, Role.WEIGHT, groups)
            # Not a copy: the values are read again when the device is attached.
            self.writer.graph.add(variable, as_numpy(tensor))
            seen_by_one = tensor if groups is None else self._part(tensor)
            self.storages.set(seen_by_one, self.writer.value(variable))
            self.variables[name] = seen_by_one
            if self.training and tensor.requires_grad and isinstance(tensor, torch.nn.Parameter):
                self.recorder.carrying.trained.add(name)
            if not isinstance(tensor, torch.nn.Parameter) and name not in self.changing:
                self.recorder.known.buffers.add(name)

    def _part(self, tensor: torch.Tensor) -> torch.nn.Parameter:
        """The part of one replica of a parameter with groups: the first entry of ``tensor``."""
        part = torch.nn.Parameter(tensor.detach()[0].clone(), requires_grad=tensor.requires_grad)
        self.parts[id(tensor)] = part
        return part

    @contextmanager
    def _modes(self) -> Iterator[None]:
        mha = torch.backends.mha.get_fastpath_enabled()
        checks = torch.distributions.Distribution._validate_args
        scopes = {id(module): name for name, module in self.module.named_modules()}
        outer: list[str] = []

        def enter(module: torch.nn.Module, inputs: Any) -> None:
            outer.append(self.writer.scope)
            self.writer.scope = scopes.get(id(module), self.writer.scope).replace(".", "/")
            self.recorder.counts_batches = module if _counts_batches(module) and module.momentum is None else None

        def leave(module: torch.nn.Module, inputs: Any, result: Any) -> None:
            self.writer.scope = outer.pop() if outer else ""
            self.recorder.counts_batches = None

        hooks = torch.nn.modules.module
        # Libraries query ``is_compiling`` before they branch on the values of a mask.
        is_compiling = torch.compiler.is_compiling
        torch.compiler.is_compiling = lambda: True
        before, ACTIVE.log = ACTIVE.log, self.log
        outside, CURRENT.trace = CURRENT.trace, self
        torch.backends.mha.set_fastpath_enabled(False)
        torch.distributions.Distribution.set_default_validate_args(False)
        try:
            with ExitStack() as stack:
                for handle in (
                    hooks.register_module_forward_pre_hook(enter),
                    hooks.register_module_forward_hook(leave),
                ):
                    stack.callback(handle.remove)
                stack.enter_context(functions_replaced(self.recorder))
                stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
                torch._C._set_mkldnn_enabled(False)
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                stack.enter_context(torch.enable_grad())
                stack.enter_context(self.recorder)
                stack.enter_context(Functions(self.recorder, self.mark))
                yield
        finally:
            ACTIVE.log, CURRENT.trace = before, outside
            torch.compiler.is_compiling = is_compiling
            torch.backends.mha.set_fastpath_enabled(mha)
            torch.distributions.Distribution.set_default_validate_args(checks)

    # For functions in forward

    def convolutions(self) -> int:
        """The number of convolutions so far."""
        return sum(op.type in ("Conv", "ConvTranspose") for op in self.writer.graph.ops)

    # Losses

    def mark(self, tensor: torch.Tensor) -> None:
        """Record a result that is a loss."""
        if isinstance(tensor, torch.Tensor) and self.storages.knows(tensor):
            self.losses.append(self.storages.read(tensor).tensor.id)

    def _loss(self) -> str:
        value = self.writer.value(self.writer.graph.tensor(_marked_loss(self.writer.graph, self.losses)))
        if value.tensor.rank and value.tensor.nelms > 1:
            value = value.op("ReduceSum", axes=list(range(value.tensor.rank)), keepdims=0)
        return value.tensor.id

    # Completion

    def _output(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            if any(isinstance(attribute, torch.Tensor) for attribute in getattr(leaf, "__dict__", {}).values()):
                raise Error(
                    f"forward returns a {type(leaf).__name__} that holds tensors, whose values would be those of the "
                    "first call; return them in a tuple, a list or a dict, or register a parser for the type"
                )
            if isinstance(leaf, str):
                raise Error(f"forward returns the text {leaf!r}; return tensors, numbers and None only")
            return leaf
        if not self.storages.knows(leaf):
            return leaf.detach()
        return self._own(self.storages.read(leaf)).tensor.id

    def _own(self, value: Value) -> Value:
        """``value`` if it is the result of an op, else a copy that can be an anchor."""
        if value.tensor.role is Role.COMPUTED:
            return value
        graph, name = self.writer.graph, self.writer.name(f"{value.tensor.id}/output")
        output = Tensor(name, value.tensor.dtype, value.tensor.shape)
        kind = "Sum" if value.tensor.dtype.is_float else "Identity"
        graph.append(Op(kind, (value.tensor.id,), (name,), {BLOCK: self.writer.block}, "", 13), [output])
        return self.writer.value(output)

    def _write_buffers(self) -> list[str]:
        """Append the changes of variables at the end of the forward pass."""
        changed = [(n, tensor) for n, tensor in self.variables.items() if self.storages.changes(tensor)]
        graph, values = self.writer.graph, {}
        for name, variable in changed:
            if isinstance(variable, torch.nn.Parameter) and variable.requires_grad:
                raise Error(f"The parameter {name} is changed in forward; only buffers can be")
            values[name] = self._own(self.storages.read(variable))
        for name, _ in changed:
            users = [op for op in graph.ops if name in op.inputs]
            if users:  # they, and their gradients, read the old value of the buffer
                copy = f"{name}/before"
                tensor = graph.tensors[name]
                graph.tensors[copy] = Tensor(copy, tensor.dtype, tensor.shape)
                first = graph.ops.index(users[0])
                for number, op in enumerate(graph.ops):
                    if name in op.inputs:
                        inputs = tuple(copy if id == name else id for id in op.inputs)
                        graph.ops[number] = replace(op, inputs=inputs)
                graph.ops.insert(first, Op("Sum", (name,), (copy,), {BLOCK: users[0].attributes[BLOCK]}, "", 13))
                self.writer.block = users[0].attributes[BLOCK]
            inputs, placed = (name, values[name].tensor.id), {BLOCK: self.writer.block}
            append(graph, Op("CopyVarUpdate", inputs, (f"{name}/after",), placed, GRAPHCORE, 1))
        return [name for name, _ in changed]

    def _refuse_unknown(self) -> None:
        if not self.recorder.unknown:
            return
        lines = [
            f"{name} ({', '.join(dict.fromkeys(places))})" for name, places in sorted(self.recorder.unknown.items())
        ]
        raise Error(
            f"Unsupported ops found in compiled model: [{', '.join(lines)}]. Not all operations are supported by the "
            "emulated IPU: replace them by others, or compute them on the host"
        )


def _described(out: Any, leaves: list[Any]) -> Any:
    """The structure of a result, with indices in place of ``leaves``."""
    if isinstance(out, torch.Tensor) or out is None:
        leaves.append(out)
        return len(leaves) - 1
    if type(out) in PARSERS:
        return (type(out), (out, [_described(tensor, leaves) for tensor in PARSERS[type(out)].yieldTensors(out)]))
    if isinstance(out, Mapping):
        return (type(out), [(key, _described(value, leaves)) for key, value in out.items()])
    if isinstance(out, tuple | list):
        return (type(out), [_described(value, leaves) for value in out])
    leaves.append(out)
    return len(leaves) - 1


@span("trace the module", Category.COMPILATION)
def trace_module(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    call: Callable[[Sequence[torch.Tensor]], Any],
    *,
    training: bool,
    scoped: bool = True,
    replicas: tuple[int, int] = (1, 1),
) -> ModuleTrace:
    """Run ``call`` once on copies of ``inputs``; return its ops as a graph.

    If ``scoped``, names of tensors begin with the path of the module that computes them. ``replicas``: the number of
    replicas of a process, and of processes.

    Raise poptorch.Error for a model that cannot be a graph, and name all ops that have no rule at once.
    """
    counts = (path for path, part in module.named_modules() if _counts_batches(part))
    changing = frozenset(f"{path}.num_batches_tracked".lstrip(".") for path in counts)
    storages = None
    while True:
        before = random_states()
        tracer = _Tracer(module, changing, scoped=scoped, replicas=replicas, earlier=storages)
        storages = tracer.storages
        trace = tracer.run(inputs, call, training)
        new = tracer.changed - changing
        integers = {name for name, buffer in module.named_buffers() if not buffer.is_floating_point()}
        if not new & integers and not (new and tracer.recorder.reads_on_host):
            break
        changing |= new
    for pair in seeds(drawn=before != random_states()):
        again = _Tracer(module, changing, scoped=scoped, replicas=replicas, earlier=storages)
        with other_state(module, pair):
            try:
                second = again.run(other_data(inputs), call, training)
            except (RuntimeError, IndexError, ValueError):
                continue  # the module cannot compute on these values
        check_same(trace.graph, second.graph, again.recorder.line_of)
    if training:
        _say_unmarked(trace.graph, tracer.losses, trace.outputs)
    return trace


def _counts_batches(module: torch.nn.Module) -> bool:
    """Whether a normalisation in training mode counts batches."""
    is_norm = isinstance(module, torch.nn.modules.batchnorm._NormBase)
    return is_norm and module.training and module.num_batches_tracked is not None


# The loss: the result of the last loss function, which the module is trained on


def _marked_loss(graph: Graph, marked: Sequence[str]) -> str:
    """Return the one of the ``marked`` losses that no other is computed from; raise poptorch.Error for several."""
    if not marked:
        raise Error("Couldn't find a loss in graph!")
    makers = graph.producers()
    reached = {ancestor for id in set(marked) for ancestor in _ancestors(id, makers)}
    final = set(marked) - reached
    if len(final) != 1:
        raise Error(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss "
            "in poptorch.identity_loss."
        )
    return final.pop()


def _say_unmarked(graph: Graph, marked: Sequence[str], outputs: Sequence[Any]) -> None:
    """Warn if forward returns what it computes from its loss, and not the loss itself."""
    makers, loss = graph.producers(), _marked_loss(graph, marked)
    ids = [id for id in outputs if isinstance(id, str)]
    if any(loss in {id, *_ancestors(id, makers, _SAME_VALUES)} for id in ids):
        return
    if any(loss in _ancestors(id, makers) for id in ids):
        warn_user(
            "The module is trained on the result of its last loss function, and not on what forward computes from it "
            "and returns; wrap that in poptorch.identity_loss(x, reduction) to train on it"
        )


def _ancestors(id: str, makers: Mapping[str, Op], through: frozenset[str] | None = None) -> set[str]:
    """The tensors that ``id`` is computed from, by ops of any type or ``through`` some."""
    waiting, ancestors = [id], set[str]()
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and (through is None or maker.type in through):
            inputs = {name for name in maker.inputs if name} - ancestors
            ancestors |= inputs
            waiting += inputs
    return ancestors
