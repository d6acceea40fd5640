"""Call: an ATen op with its arguments by name, as the rules of the table see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.graph import DType
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.graph.narrowing import narrowed
from ipu_emu.ops import Value
from ipu_emu.poptorch.dtypes import device_dtype
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.graph_writer import GraphWriter

Rule = Callable[["Call"], Any]


def in_float(rule: Rule) -> Rule:
    """Return ``rule``, of several ops, with FLOAT16 operands as FLOAT: PyTorch rounds only its result to FLOAT16."""

    @wraps(rule)
    def widened(call: Call) -> Any:
        return rule(call.in_float())

    return widened


def root(total: Value, power: float = 0.5) -> Value:
    """Return a root of sums of powers; its gradient is 0 where the sum is 0, as in PyTorch's norms."""
    zero = total.op("Equal", total.like(0))
    safe = zero.op("Where", total.like(1), total)
    result = safe.op("Sqrt") if power == 0.5 else safe.op("Pow", total.like(power))
    return zero.op("Where", total.like(0), result)


def raised(size: Value, power: float) -> Value:
    """Return a power of sizes; its gradient is 0 where the size is 0, as in PyTorch's norms."""
    zero = size.op("Equal", size.like(0))
    of_zero = size.like(0 if power > 0 else np.inf)
    return zero.op("Where", of_zero, zero.op("Where", size.like(1), size).op("Pow", size.like(power)))


def transposed(x: Value, perm: Sequence[int]) -> Value:
    """Return ``x`` with its axes in the order ``perm``."""
    return x if list(perm) == list(range(len(perm))) else x.op("Transpose", perm=list(perm))


def listed(sizes: Any, count: int) -> list[int]:
    """Return the sizes of ``count`` axes, which may be one number for all."""
    values = [sizes] if isinstance(sizes, int) else [int(size) for size in sizes]
    return values * count if len(values) == 1 else values


def batched(x: Value, spatial: int) -> Value:
    """Return ``x`` with axes of samples and of channels before its ``spatial`` ones."""
    return x if x.tensor.rank == spatial + 2 else x.shaped((1, *x.tensor.shape))


def finite(x: Value) -> Value:
    """Return ``x`` with 0 in place of infinities, to be subtracted from exponents."""
    return x.op("IsInf").op("Where", x.like(0), x)


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among ``values``, and in lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


class ReadArguments(Mapping[str, Any]):
    """Arguments by name, which remembers the names that a rule has read."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._arguments[name]

    def __contains__(self, name: object) -> bool:
        return name in self._arguments

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    def unread(self, defaults: Mapping[str, Any]) -> list[str]:
        """The arguments that have other values than ``defaults`` and were not read."""
        left = [name for name in self._arguments if name not in self.read]
        return [name for name in left if not _is_default(self._arguments[name], defaults.get(name))]


def _is_default(value: Any, default: Any) -> bool:
    return value is None or (not isinstance(value, torch.Tensor) and value == default)


class Call:
    """An ATen op: ``outputs`` are its results on the host, ``values`` the graph's values of its tensor arguments.

    ``types`` returns the element type of the value that a tensor of PyTorch has.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        values: Mapping[int, Value],
        writer: GraphWriter,
        write: Callable[[torch.Tensor, Value], None],
        types: Callable[[torch.dtype], DType] = device_dtype,
    ) -> None:
        self.name, self.arguments, self.writer, self.write = name, ReadArguments(arguments), writer, write
        self.types = types
        self._values = values
        self.outputs: list[torch.Tensor] = []

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or ``default`` if it is absent or None."""
        argument = self.arguments.get(name)
        return default if argument is None else argument

    def replacing(self, tensor: torch.Tensor, value: Value) -> Call:
        """Return this call with another value of an argument."""
        values = dict(self._values) | {id(tensor): value}
        other = Call(self.name, self.arguments, values, self.writer, self.write, self.types)
        other.outputs = self.outputs
        return other

    def in_float(self) -> Call:
        """Return this call with FLOAT values in place of those of FLOAT16."""
        other = copy(self)
        other.types = lambda dtype: FLOAT if self.types(dtype) is FLOAT16 else self.types(dtype)
        other._values = {i: v.cast(FLOAT) if v.tensor.dtype is FLOAT16 else v for i, v in self._values.items()}
        return other

    # Values

    def of(self, argument: Any) -> Value:
        """The value of a tensor argument; a number becomes a constant of the type that PyTorch infers."""
        if isinstance(argument, torch.Tensor):
            return self._values[id(argument)]
        kind = np.bool_ if isinstance(argument, bool) else np.int32 if isinstance(argument, int) else np.float32
        return self.constant(np.asarray(argument), kind)

    def value(self, name: str) -> Value:
        return self.of(self.arguments[name])

    def optional(self, name: str) -> Value | None:
        argument = self.arguments.get(name)
        return None if argument is None else self.of(argument)

    @property
    def x(self) -> Value:
        """The value of the first argument."""
        return self.of(self.first)

    @property
    def atleast_1d(self) -> Value:
        """The value of the first argument; a scalar as a vector, so that it has an axis."""
        return self.x if self.x.tensor.rank else self.x.shaped((1,))

    @property
    def first(self) -> torch.Tensor:
        """The first argument."""
        tensor: torch.Tensor = self.arguments[next(iter(self.arguments))]
        return tensor

    @property
    def out(self) -> torch.Tensor:
        """The first result on the host."""
        return self.outputs[0]

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.type_of(self.out)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.out.shape)

    def type_of(self, tensor: torch.Tensor) -> DType:
        """The element type of the value of a tensor."""
        return self.types(tensor.dtype)

    def constant(self, array: Any, kind: Any = None) -> Value:
        """Return a constant of the graph."""
        return self.writer.constant(np.asarray(array) if kind is None else np.asarray(array).astype(kind))

    def number(self, value: float, like: Value) -> Value:
        """Return a scalar of the element type of ``like``."""
        return self.writer.constant(narrowed(np.asarray(value), like.tensor.dtype.numpy))

    def numpy(self, tensor: torch.Tensor) -> NDArray[Any]:
        """The value of a tensor that is a constant."""
        value = self._values[id(tensor)]
        array = self.writer.graph.data.get(value.tensor.id)
        if array is None:
            raise self.refuse("it takes an argument that must be known when the model is compiled")
        return array

    def common(self, *names: str) -> list[Value]:
        """Arguments cast to the type that PyTorch promotes them to."""
        operands = [self.arguments[name] for name in names]
        dtype = self.types(_result_type(operands[0], operands[-1]))
        return [self.as_type(operand, dtype) for operand in operands]

    def in_result_type(self, *names: str) -> list[Value]:
        """Arguments cast to the element type of the first result."""
        return [self.as_type(self.arguments[name], self.dtype) for name in names]

    def as_type(self, argument: Any, dtype: DType) -> Value:
        """An argument, a tensor or a number, with the element type ``dtype``."""
        if isinstance(argument, torch.Tensor):
            return self.of(argument).cast(dtype)
        return self.writer.constant(narrowed(np.asarray(argument), dtype.numpy))

    def conformed(self, value: Value, result: torch.Tensor) -> Value:
        """``value`` with the type and shape that the host's result has."""
        value, shape = value.cast(self.type_of(result)), tuple(result.shape)
        if value.tensor.shape == shape:
            return value
        return value.shaped(shape) if value.tensor.nelms == result.numel() else value.spread_to(shape)

    def axis(self, name: str = "dim", default: int = 0, rank: int | None = None) -> int:
        """An axis counted from the front."""
        rank = self.first.dim() if rank is None else rank
        return int(self.get(name, default)) % max(rank, 1)

    def axes(self, name: str = "dim", rank: int | None = None) -> list[int]:
        """Axes counted from the front; by default all."""
        rank = self.first.dim() if rank is None else rank
        dims = self.get(name)
        if dims is None or (isinstance(dims, Sequence) and not len(dims)):
            return list(range(rank))
        axes = [dims] if isinstance(dims, int) else list(dims)
        return [int(axis) % max(rank, 1) for axis in axes]

    # Shapes

    def sliced(self, x: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int]) -> Value:
        """Return the elements from ``starts`` to before ``ends`` along ``axes``."""
        attributes = {"starts": list(starts), "ends": list(ends), "axes": list(axes)}
        return self.writer.emit_in("ai.graphcore", "Slice", [x], attributes)[0]

    def refuse(self, why: str) -> Error:
        """Return the error of an op that cannot be compiled."""
        return Error(f"{self.name} (in module '{self.writer.scope or 'the model'}'): {why}")


def _result_type(a: Any, b: Any) -> torch.dtype:
    has_tensor = isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor)
    return torch.result_type(a if has_tensor else torch.tensor(a), b)


#: Arguments whose whole effect is the shape, the type or the place of the result on the host, which a value gets.
_IN_RESULT = frozenset(
    (
        *("size", "dtype", "keepdim", "output_size", "half_to_float", "out_int32", "implicit", "split_size"),
        *("split_sizes", "chunks", "memory_format", "layout", "device", "pin_memory", "non_blocking", "copy"),
    )
)

_SHAPE_OF = ("self",)

#: The same for arguments of some ops, and arguments that select between equal results.
_WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("full_like", "ones_like", "zeros_like", "rand_like", "randn_like"), _SHAPE_OF),
    **dict.fromkeys(("randint_like", "new_full", "new_ones", "new_zeros"), _SHAPE_OF),
    **dict.fromkeys(("squeeze", "unsqueeze"), ("dim",)),
    "_cdist_forward": ("compute_mode",),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only", "embedding"), ("sparse",)),
    "_index_put_impl": ("unsafe",),
    "_reshape_alias": ("stride",),
    "_trilinear": ("unroll_dim",),
    "argsort": ("stable",),
    "as_strided": ("stride", "storage_offset"),
    "flatten": ("start_dim", "end_dim"),
    "gather": ("sparse_grad",),
    "native_group_norm": ("N", "C", "HxW"),
    "rrelu_with_noise": ("noise",),
    "reshape": ("shape",),
    "sort": ("stable",),
    "topk": ("sorted",),
}


def check_arguments(call: Call, func: Any) -> None:
    """Raise poptorch.Error for an argument of ``func`` off its default that has an effect and was not read."""
    arguments = func._schema.arguments
    defaults = {arg.name: arg.default_value for arg in arguments if arg.has_default_value()}
    written = {arg.name for arg in arguments if arg.alias_info is not None and arg.alias_info.is_write}
    allowed = _IN_RESULT.union(_WITHOUT_EFFECT.get(call.name, ()), written)
    left = [name for name in call.arguments.unread(defaults) if name not in allowed]
    if "generator" in left:
        raise call.refuse("it draws from a generator of the host, and devices have their own; leave generator out")
    if left:
        values = ", ".join(_written(name, call.arguments[name]) for name in left)
        raise call.refuse(f"{values} has no equivalent on IPUs; leave {'it' if len(left) == 1 else 'them'} out")


def _written(name: str, value: Any) -> str:
    return name if isinstance(value, torch.Tensor) else f"{name}={value}"
