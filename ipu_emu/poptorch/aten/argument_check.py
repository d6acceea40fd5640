"""Argument check: an argument of an ATen op that its rule does not read must have its default, or have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_emu.poptorch.aten.call import Call

__all__ = ["check_arguments"]

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
    "_embedding_bag": ("sparse",),
    "_index_put_impl": ("unsafe",),
    "_reshape_alias": ("stride",),
    "argsort": ("stable",),
    "as_strided": ("stride", "storage_offset"),
    "embedding": ("sparse",),
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
    defaults = {one.name: one.default_value for one in func._schema.arguments if one.has_default_value()}
    allowed = _IN_RESULT.union(_WITHOUT_EFFECT.get(call.name, ()))
    left = [name for name in call.arguments.unread(defaults) if name not in allowed]
    if "generator" in left:
        raise call.refuse("it draws from a generator of the host, and devices have their own; leave generator out")
    if left:
        values = ", ".join(f"{name}={call.arguments[name]}" for name in left)
        raise call.refuse(f"{values} has no equivalent on IPUs; leave {'it' if len(left) == 1 else 'them'} out")
