"""OpRecorder: runs every ATen op of a module on the host, and appends the equivalent ops to the graph."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, check_arguments, tensors_in
from ipu_emu.poptorch.aten.random import RANDOM
from ipu_emu.poptorch.aten.table import RULES
from ipu_emu.poptorch.blocks import BlockLog
from ipu_emu.poptorch.dtypes import as_numpy
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.graph_writer import GraphWriter
from ipu_emu.poptorch.tracing.host_arithmetic import host_result
from ipu_emu.poptorch.tracing.storages import Storages

#: In-place random ops; they have separate rules because they ignore the old values.
_IN_PLACE = {"normal": "normal_in"}
#: Ops that change the sizes and strides of a tensor in place.
_TURNS = frozenset(("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze"))
#: Ops that return a value to the host.
_TO_HOST = {"_local_scalar_dense": "item", "is_nonzero": "is_nonzero", "equal": "equal"}
#: Ops whose later operands are cast to the type of the first.
_CAST_TO_FIRST = frozenset({
    "convolution", "addmm", "mm", "bmm", "baddbmm", "native_layer_norm", "native_batch_norm", "native_group_norm",
    "linear",
})  # fmt: skip
_PACKAGES = tuple(str(Path(__file__).parents[3] / name) for name in ("ipu_emu", "popdist_py"))
_FACTORIES = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"])
#: The ATen ops that take most of the time of a forward pass, with the position of the first factor; the second
#: one follows it.
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "convolution": 0}


class OpRecorder(TorchDispatchMode):
    """Records ops in a graph; ``unknown`` collects ops without a rule, with the places that call them."""

    def __init__(self, writer: GraphWriter, storages: Storages, log: BlockLog) -> None:
        super().__init__()
        self.writer, self.storages, self.log = writer, storages, log
        self.unknown: dict[str, list[str]] = {}
        self.paused = False
        #: Whether forward has read values of buffers or constants on the host.
        self.reads_on_host = False
        #: The normalisation that runs now and averages over the number of batches.
        self.counts_batches: torch.nn.Module | None = None
        #: The program's line of the ops from each number of ops on.
        self.lines: list[tuple[int, str, int]] = []
        self.known = _KnownValues(writer.graph)
        self.carrying = _Carrying(writer.graph)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if self.paused:
            return func(*args, **kwargs)
        if str(kwargs.get("device", "cpu")).startswith("ipu"):
            kwargs["device"] = torch.device("cpu")
        name = func._schema.name.partition("::")[2]
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        arguments = _bound(func, args, kwargs)
        tensors = list(tensors_in(arguments.values()))
        mutated = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if any(self.storages.is_of_an_earlier_call(tensor) for tensor in tensors):
            raise Error(
                f"{self.where()} uses a tensor that an earlier call of forward computed, and the graph is recorded "
                "once: keep it in a buffer, which forward changes in place"
            )
        if base in _FACTORIES:
            return func(*args, **kwargs).zero_()  # what the memory held before must not become a constant
        if not any(self.storages.knows(tensor) for tensor in tensors) and (
            base not in RANDOM or not self._draws(func)
        ):
            return host_result(func, base, args, kwargs, arguments)
        if base in _TO_HOST and (self.counts_batches or all(self.is_known(tensor) for tensor in tensors)):
            self.reads_on_host = True
            return func(*args, **kwargs)
        if base in _TO_HOST:
            raise Error(
                f"aten::{_TO_HOST[base]} is only supported in eager mode, but was intercepted in a static graph. "
                f"This means an operation in {self.where()} needs a value of the device while the model is compiled"
            )
        if base in _CAST_TO_FIRST:
            args = _alike(args)  # on the host; the rules cast values themselves
        return self._record(func, base, args, kwargs, arguments, tensors, mutated)

    @staticmethod
    def _draws(func: Any) -> bool:
        return not func._schema.name.endswith("dropout")

    def _record(
        self,
        func: Any,
        base: str,
        args: Any,
        kwargs: Any,
        arguments: dict[str, Any],
        tensors: list[Any],
        mutated: Any,
    ) -> Any:
        self._enter_block()
        self.lines.append((len(self.writer.graph.ops), *self._line()))
        for name in mutated:
            if isinstance(arguments.get(name), torch.Tensor):
                self.storages.prepare(arguments[name])
        # Parts of an unsafe split, which recurrent cells use, share the memory of the whole, as an unsafe view does.
        is_view = base.lstrip("_").startswith("unsafe_") or any(
            r.alias_info is not None for r in func._schema.returns
        )
        read = self.storages.read if is_view and not mutated else self._operand
        values = {id(tensor): read(tensor) for tensor in tensors}
        # Results that cannot be read on the host need no values there.
        unread = (
            base in PRODUCTS and not mutated and not all(value.tensor.id in self.known for value in values.values())
        )
        destinations = [(kwargs[name], kwargs[name].shape) for name in mutated if name in kwargs]
        out = zeros_of_product(base, func, args, kwargs) if unread else func(*args, **kwargs)
        if any(tensor.shape != shape for tensor, shape in destinations):
            raise Error(f"{base} in {self.where()} gives its out= another shape; give it a tensor of the right shape")
        results = list(tensors_in([out]))
        self._check_results(base, results)
        rule_name = _IN_PLACE.get(base, base) if mutated and base in _IN_PLACE else base
        call = Call(rule_name, arguments, values, self.writer, self._write)
        call.outputs = results
        outputs = self._applied(rule_name, call, results)
        if rule_name in RULES:
            check_arguments(call, func)
        if any(result.alias_info is not None and result.alias_info.is_write for result in func._schema.returns):
            for name, value in zip(mutated, outputs, strict=False):
                if value is None or not isinstance(arguments[name], torch.Tensor):
                    continue
                if base in _TURNS:
                    self.storages.turned(arguments[name], value)
                else:
                    self.storages.write(arguments[name], self._changed(arguments[name], value))
            return out
        for number, (result, value) in enumerate(zip(results, outputs, strict=True)):
            if value is None or not result.numel():
                continue
            if is_view and self.storages.knows(tensors[0]):
                self._remember_view(rule_name, call, tensors[0], result, value, number)
            elif not self.storages.knows(result) or not is_view:
                self.storages.set(result, value)
        return out

    def _enter_block(self) -> None:
        if self.log.current is None:
            raise Error("No active Block, all the ops must belong to a Block")
        self.writer.block = self.log.current

    def _check_results(self, base: str, results: Sequence[torch.Tensor]) -> None:
        """Raise poptorch.Error for tensors that an IPU cannot hold."""
        if any(result.is_complex() for result in results):
            raise Error(
                f"aten::{base} in {self.where()} gives complex numbers, which IPUs do not support; compute with "
                "real and imaginary parts"
            )
        if any(result.layout is not torch.strided or result.device.type != "cpu" for result in results):
            raise Error(
                f"aten::{base} in {self.where()}: layout and device of its result are not those of a dense "
                "tensor on the IPU; leave layout and device out"
            )

    def _operand(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor, without a gradient where PyTorch's tensor has none: under no_grad, and detached."""
        value = self.storages.read(tensor)
        # A view of a parameter that was made under no_grad requires a gradient by name only.
        follows = tensor.requires_grad and (tensor.grad_fn is not None or isinstance(tensor, torch.nn.Parameter))
        if (torch.is_grad_enabled() and follows) or value.tensor.id not in self.carrying:
            return value
        return self.carrying.detached(value)

    def _changed(self, tensor: torch.Tensor, value: Value) -> Value:
        """The new value of a tensor; if PyTorch does not record the change, gradients pass to the old value."""
        old = self.storages.read(tensor)
        if (torch.is_grad_enabled() and tensor.requires_grad) or old.tensor.id not in self.carrying:
            return value
        return self.carrying.detached(value) + (old - self.carrying.detached(old))

    def _write(self, tensor: torch.Tensor, value: Value) -> None:
        """Change a tensor in place, which may be a constant."""
        self.storages.prepare(tensor)
        self.storages.write(tensor, value)

    def _remember_view(self, name: str, call: Call, base: Any, result: Any, value: Value, number: int) -> None:
        def replay(other: Value) -> Value:
            output = self._applied(name, call.replacing(base, other), call.outputs)[number]
            assert output is not None
            return output

        self.storages.view(base, result, value, replay)

    def _applied(self, name: str, call: Call, results: Sequence[torch.Tensor]) -> list[Value | None]:
        rule = RULES.get(name)
        if rule is None:
            self.unknown.setdefault(f"aten::{name}", []).append(self.where())
            return [self.writer.constant(as_numpy(result)) if result.numel() else None for result in results]
        try:
            outputs = rule(call)
        except EmulatorError as error:
            raise Error(f"aten::{name} in {self.where()}: {error}") from error
        listed = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        listed += [None] * (len(results) - len(listed))
        return [
            None if value is None else call.conformed(value, result)
            for value, result in zip(listed, results, strict=False)
        ]

    # Ops that are recorded as one

    def composite(self, name: str, arguments: dict[str, Any], aside: Callable[[], Any]) -> Any:
        """Append an op; ``aside`` computes its results on the host, and its own ops are not recorded."""
        self.paused = True
        try:
            out = aside()
        finally:
            self.paused = False
        self._enter_block()
        values = {id(tensor): self._operand(tensor) for tensor in tensors_in(arguments.values())}
        call = Call(name, arguments, values, self.writer, self._write)
        call.outputs = list(tensors_in([out]))
        for result, value in zip(call.outputs, self._applied(name, call, call.outputs), strict=True):
            if value is not None:
                self.storages.set(result, value)
        return out

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether a value, such as a check of a mask, depends only on buffers and constants."""
        return not self.storages.knows(tensor) or self.storages.read(tensor).tensor.id in self.known

    def where(self) -> str:
        """The current module and line of the program."""
        file, line = self._line()
        place = f" ({file}:{line})" if file else ""
        return f"module '{self.writer.scope or 'the model'}'{place}"

    def carries(self, tensor: torch.Tensor) -> bool:
        """Whether gradients of trained weights flow through a tensor."""
        return self.storages.knows(tensor) and self.storages.read(tensor).tensor.id in self.carrying

    @staticmethod
    def _line() -> tuple[str, int]:
        frame: Any = sys._getframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if "/torch/" not in file and not file.startswith(_PACKAGES) and file != contextlib.__file__:
                return file, frame.f_lineno
            frame = frame.f_back
        return "", 0

    def line_of(self, op: int) -> str:
        """The file and the line of the program that appended the op with this number."""
        before = [entry for entry in self.lines if entry[0] <= op]
        return f"{before[-1][1]}:{before[-1][2]}" if before else "forward"


def _bound(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an ATen op by name, with its defaults."""
    schema = func._schema.arguments
    defaults = {arg.name: arg.default_value if arg.has_default_value() else None for arg in schema}
    return defaults | dict(zip(defaults, args, strict=False)) | kwargs


def _alike(args: Sequence[Any]) -> tuple[Any, ...]:
    """The floating-point operands cast to the type of the data: FLOAT16 data with float weights are legal."""
    floats = [tensor for tensor in args if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()]
    if len({tensor.dtype for tensor in floats}) < 2:
        return tuple(args)
    kind = floats[1 if len(floats) > 2 and floats[0].dim() == 1 else 0].dtype
    return tuple(
        arg.to(kind) if isinstance(arg, torch.Tensor) and arg.is_floating_point() and arg.dtype != kind else arg
        for arg in args
    )


class _Carrying:
    """The tensors that depend on the trained weights, ``trained``, so that gradients flow through them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.trained: set[str] = set()
        self._through: set[str] = set()
        self._seen = 0
        self._detached: dict[str, Value] = {}

    def __contains__(self, id: str) -> bool:
        for op in self._graph.ops[self._seen :]:
            if op.type != "Detach" and any(source in self._through or source in self.trained for source in op.inputs):
                self._through.update(out for out in op.outputs if self._graph.tensors[out].dtype.is_float)
        self._seen = len(self._graph.ops)
        return id in self._through or id in self.trained

    def detached(self, value: Value) -> Value:
        """Return ``value`` without its gradient, always the same tensor."""
        if value.tensor.id not in self._detached:
            self._detached[value.tensor.id] = value.op("Detach")
        return self._detached[value.tensor.id]


class _KnownValues:
    """The tensors that depend only on buffers and constants, so that the host has their values.

    ``buffers`` are the weights of the graph that are buffers; during a trace ops are only appended to the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.buffers: set[str] = set()
        self._unknown: set[str] = set()
        self._seen = 0

    def __contains__(self, id: str) -> bool:
        """Whether a tensor is known: it does not depend on parameters, inputs or random numbers."""
        for op in self._graph.ops[self._seen :]:
            if op.type.startswith("Random") or any(source and not self._is_source(source) for source in op.inputs):
                self._unknown.update(op.outputs)
        self._seen = len(self._graph.ops)
        return self._is_source(id)

    def _is_source(self, id: str) -> bool:
        role = self._graph.tensors[id].role
        is_parameter = role is Role.WEIGHT and id not in self.buffers
        return role is not Role.INPUT and not is_parameter and id not in self._unknown


def zeros_of_product(name: str, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Return zeros with the shape and type of the result of one of ``PRODUCTS``; raise the same errors as PyTorch."""
    first, second = args[PRODUCTS[name] : PRODUCTS[name] + 2]
    if name == "convolution":
        product = func(*map(_abstract, args), **kwargs)
        return torch.zeros(product.shape, dtype=product.dtype)
    shape = (*first.shape[:-1], second.shape[-1])
    if not _match(first, second) or not all(_spreads(tensor, shape) for tensor in args[: PRODUCTS[name]]):
        return func(*args, **kwargs)
    return torch.zeros(shape, dtype=first.dtype)


def _abstract(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device="meta")


def _match(first: torch.Tensor, second: torch.Tensor) -> bool:
    same = first.dtype == second.dtype and first.dim() == second.dim() and first.shape[:-2] == second.shape[:-2]
    return bool(same and first.shape[-1] == second.shape[-2])


def _spreads(added: torch.Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(reversed(added.shape), reversed(shape), strict=False)
    return added.dim() <= len(shape) and all(size in (1, full) for size, full in sizes)
