"""Host arithmetic: what a module computes from constants alone, with the bits that the device would give.

PyTorch computes it while the module is recorded, and its functions, sums and products have other last bits on other
processors. So the rules of the table compute floating-point results again, with 64-bit types where PyTorch has them.

    angles = torch.arange(8) / 10000 ** (torch.arange(0, 32, 2) / 32)      Pow, Div: exact but for Pow
    self.rotate(x, angles.cos(), angles.sin())                             Cos, Sin
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.compiler.rewriting.expansion import constants_of
from ipu_emu.errors import EmulatorError, UnsupportedError
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, check_arguments, tensors_in
from ipu_emu.poptorch.aten.random import RANDOM
from ipu_emu.poptorch.aten.table import RULES
from ipu_emu.poptorch.dtypes import wide_dtype
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.graph_writer import GraphWriter

#: What rules and kernels raise for operands that they do not take.
_OF_PYTHON = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_REFUSALS = (EmulatorError, Error, *_OF_PYTHON)
#: Ops whose results PyTorch does not round, or rounds once, so that they have the same bits on every processor.
_EXACT = frozenset({
    "abs", "add", "ceil", "copysign", "div", "floor", "floor_divide", "fmod", "frac", "mul", "neg", "remainder",
    "round", "rsub", "sgn", "sign", "square", "sub", "trunc", "_index_put_impl", "_reshape_alias", "_to_copy",
    "_unsafe_index", "_unsafe_view", "alias", "as_strided", "cat", "channel_shuffle", "clone", "constant_pad_nd",
    "contiguous", "copy", "detach", "diagonal", "embedding", "expand", "fill", "flatten", "flip", "full_like",
    "gather", "index", "index_copy", "index_fill", "index_put", "index_select", "lift_fresh", "lift_fresh_copy",
    "masked_fill", "masked_select", "movedim", "narrow", "new_full", "new_ones", "new_zeros", "one_hot", "ones_like",
    "permute", "pixel_shuffle", "pixel_unshuffle", "print_tensor", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "repeat", "repeat_interleave", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "reshape", "roll", "scatter", "select", "select_scatter", "slice", "slice_scatter", "sort", "split",
    "split_with_sizes", "squeeze", "stack", "t", "take", "topk", "transpose", "tril", "triu", "unbind", "unfold",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze", "view", "where", "zero", "zeros_like",
})  # fmt: skip
#: Ops whose rules compute DOUBLE in double precision; others leave float64 to PyTorch.
_IN_DOUBLE = frozenset({
    "acos", "acosh", "add", "addcdiv", "addcmul", "addmm", "addmv", "amax", "amin", "aminmax", "asin", "asinh",
    "atan", "atan2", "atanh", "baddbmm", "bmm", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "cumprod", "cumsum",
    "deg2rad", "dot", "erf", "erfc", "exp", "exp2", "expm1", "fmax", "fmin", "hypot", "lerp", "linalg_cross",
    "linalg_vector_norm", "log", "log10", "log1p", "log2", "logaddexp", "logsumexp", "max", "maximum", "mean", "min",
    "minimum", "mm", "mv", "norm", "pow", "prod", "rad2deg", "reciprocal", "rsqrt", "rsub", "sigmoid", "silu", "sin",
    "sinc", "sinh", "softplus", "sqrt", "std", "std_mean", "sub", "sum", "tan", "tanh", "var", "var_mean", "xlogy",
})  # fmt: skip


def host_result(func: Any, name: str, args: Any, kwargs: Any, arguments: Mapping[str, Any]) -> Any:
    """Run the ATen op ``name``, whose operands are on the host; its floating-point results have defined bits."""
    compute = _arithmetic(name, arguments)
    call = None if compute is None else _call(name, arguments)
    out = func(*args, **kwargs)
    if compute is None or call is None:
        return out
    call.outputs = list(tensors_in([out]))
    if any(result.is_floating_point() and result.numel() for result in call.outputs):
        for result, array in zip(call.outputs, compute(call, func), strict=False):
            if array is not None and result.is_floating_point():
                result.copy_(torch.from_numpy(array).reshape(result.shape))
    return out


def _arithmetic(name: str, arguments: Mapping[str, Any]) -> Callable[[Call, Any], list[NDArray[Any] | None]] | None:
    """The function that computes the results of an op; None for PyTorch's own."""
    if name in _RANGES:
        return lambda call, func: [_RANGES[name](call)]
    exact = name in _EXACT and not arguments.get("accumulate") and arguments.get("alpha", 1) in (1, -1)
    return None if exact or name in RANDOM or name not in RULES else _by_rule


def _call(name: str, arguments: Mapping[str, Any]) -> Call | None:
    """The op in a graph of its own; None if an operand, such as a complex one, has no equivalent in graphs."""
    writer = GraphWriter()
    try:
        operands = {id(tensor): writer.constant(_elements(tensor)) for tensor in tensors_in(arguments.values())}
    except _REFUSALS:
        return None
    return Call(name, arguments, operands, writer, _refuse_change, wide_dtype)


def _by_rule(call: Call, func: Any) -> list[NDArray[Any] | None]:
    """The results by the rule of the table, none of them where it refuses the call or does not fit."""
    if call.name not in _IN_DOUBLE and any(result.dtype is torch.float64 for result in call.outputs):
        return []
    try:
        computed = RULES[call.name](call)
        check_arguments(call, func)
        values = list(computed) if isinstance(computed, list | tuple) else [computed]
        pairs = zip(values, call.outputs, strict=False)
        ids = [None if value is None else call.conformed(value, result).tensor.id for value, result in pairs]
        arrays = iter(constants_of(call.writer.graph, [id for id in ids if id]))
    except _REFUSALS:
        return []
    return [next(arrays) if id else None for id in ids]


def _refuse_change(tensor: torch.Tensor, value: Value) -> None:
    raise UnsupportedError("a tensor of the host is changed by PyTorch; change one of the device")


def _elements(tensor: torch.Tensor) -> NDArray[Any]:
    """A copy of the elements, because the op may change them in place."""
    plain = tensor.detach()
    plain = plain.float() if plain.dtype is torch.bfloat16 else plain
    return np.array(plain.numpy(force=True))


# Ranges: each element in double precision, from its index


def _arange(call: Call) -> NDArray[Any]:
    return _line(call.get("start", 0), call.get("step", 1), call.out.numel())


def _linspace(call: Call) -> NDArray[Any]:
    """The second half from the end, as in PyTorch."""
    count, start, end = call.out.numel(), float(call["start"]), float(call["end"])
    step = (end - start) / max(count - 1, 1)
    return np.where(np.arange(count) < max(count // 2, 1), _line(start, step, count), _line(end, -step, count)[::-1])


def _line(start: float, step: float, count: int) -> NDArray[Any]:
    return float(start) + float(step) * np.arange(count, dtype=np.float64)


_RANGES: dict[str, Callable[[Call], NDArray[Any]]] = {"arange": _arange, "linspace": _linspace}
