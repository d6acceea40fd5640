"""Edge cases: functions of ATen ops at values that random numbers miss, with arguments off their defaults.

A case is a name, a function and its inputs. Floating-point inputs are also differentiated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["FAMILIES", "Case"]

Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]
T = torch.tensor

FLOATS = T(
    [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-40, 1e-8, 20.5, 0.3, -0.7, -6.0, 6.0]
)
FINITE = T([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 6.0, -3.0, 0.3, -0.7])
HALVES = T([nan, inf, -inf, 0.0, 1.0, -1.0, 2.5, 60000.0, 6e-8, 300.0, 0.3]).half()
INTEGERS = T([0, 1, -1, 2, -2, 7, -7, 2**31 - 1, 16777217, 46341], dtype=torch.int32)
BYTES = T([0, 1, 2, 3, 7, 255], dtype=torch.uint8)
TRUTHS = T([True, False, True])
ROWS = T(
    [
        [1.0, nan, 2.0, nan],
        [3.0, 3.0, 1.0, 1.0],
        [-inf, -inf, -inf, -inf],
        [inf, 1.0, inf, -1.0],
        [0.0, -0.0, 0.0, 2.0],
    ]
)
TIES = T([[1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
BIG_HALVES = T([[60000.0, 60000.0, 0.0, 1.0], [0.1, 0.2, 0.3, 0.4], [300.0, 300.0, 300.0, 300.0]]).half()
SCALAR, COLUMN = T(2.5), T([[2.0], [3.0]])
INDEX = T([[2, 0, 2], [1, 1, 0]])


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def pairs(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of elements."""
    return a.repeat_interleave(len(b)), b.repeat(len(a))


#: Functions of one operand, by the values whose gradients PyTorch has too.
UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac isfinite isinf isnan log "
    "log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan "
    "tanh trunc deg2rad rad2deg nan_to_num"
)
ACTIVATIONS = (
    "relu elu selu celu gelu silu mish softplus hardtanh hardswish hardsigmoid leaky_relu relu6 logsigmoid "
    "hardshrink softshrink"
)
BINARY = (
    "add sub mul div floor_divide fmod remainder maximum minimum fmax fmin atan2 hypot logaddexp copysign pow eq ne "
    "lt le gt ge logical_and logical_or logical_xor xlogy"
)


def detached(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` without gradients, which PyTorch does not define at all values."""
    return lambda *xs, **options: function(*(x.detach() for x in xs), **options)


def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.floor_divide(a.detach(), b.detach())


def elementwise() -> Iterator[Case]:
    for name in UNARY.split():
        yield name, detached(getattr(torch, name)), (FLOATS,)
        yield name, detached(getattr(torch, name)), (HALVES,)
        yield name, getattr(torch, name), (FINITE,)
        yield name, getattr(torch, name), (SCALAR,)
        if name != "frac":
            yield name, getattr(torch, name), (INTEGERS,)
    for name in ACTIVATIONS.split():
        yield name, detached(getattr(F, name)), (FLOATS[2:] if name == "gelu" else FLOATS,)
        yield name, getattr(F, name), (FINITE,)
    for name in BINARY.split():
        function = floor_divide if name == "floor_divide" else getattr(torch, name)
        yield name, detached(function), pairs(FLOATS, FLOATS[1:13])
        yield name, function, pairs(FINITE, FINITE[2:12].abs() if name == "xlogy" else FINITE[2:12])
        yield name, detached(function), (HALVES, HALVES.flip(0))
        if name not in ("xlogy", "hypot", "logaddexp"):
            yield name, function, pairs(INTEGERS, INTEGERS[1:])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield name, getattr(torch, name), pairs(INTEGERS, INTEGERS)
        yield name, getattr(torch, name), pairs(TRUTHS, TRUTHS)
    yield "bitwise_not", lambda x, t: (torch.bitwise_not(x), ~t), (INTEGERS, TRUTHS)
    for mode in ("floor", "trunc"):
        for operands in (pairs(FINITE, FINITE[2:]), pairs(INTEGERS, INTEGERS[1:])):
            yield f"div {mode}", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), operands
    for exponent in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5):
        yield f"x ** {exponent}", lambda x, e=exponent: x**e, (FLOATS[5:13].abs(),)
    yield "powers of integers", lambda x: (x**3, x**7, (-2) ** x.clamp(0, 40)), (INTEGERS,)
    for decimals in (-1, 1, 3):
        yield f"round {decimals}", lambda x, n=decimals: x.round(decimals=n), (FLOATS,)
    yield "round halves", lambda x: x.round(decimals=5), (HALVES[3:7],)
    for weight in (0.3, 0.7, 1.0):
        yield f"lerp {weight}", lambda a, b, w=weight: torch.lerp(a, b, w), (FINITE, FINITE.flip(0))
    yield "lerp of tensors", torch.lerp, (FINITE, FINITE.flip(0), FINITE.abs() / 6)
    yield "clamp", lambda x: (x.clamp(-1, 1), x.clamp(1, -1), x.clamp_min(0), x.clamp_max(1)), (FLOATS,)
    yield "clamp to tensors", lambda x, low: x.clamp(low, low + 1), (FINITE, FINITE.flip(0))
    yield "nan_to_num", lambda x: torch.nan_to_num(x, inf, 2.0, 3.0), (FLOATS,)
    yield (
        "addcmul",
        lambda a, b: torch.addcmul(a, a, b, value=-0.5) + torch.addcdiv(a, b, a + 9, value=2),
        pairs(FINITE, FINITE),
    )
    yield (
        "alpha",
        lambda a, b: (torch.add(a, b, alpha=3), torch.sub(a, b, alpha=2), torch.rsub(a, b, alpha=2)),
        pairs(FINITE, FINITE),
    )
    yield "where", lambda x: (torch.where(x > 0, x, 0), x.masked_fill(x != x, -inf)), (FLOATS,)
    yield "xlogy", detached(torch.xlogy), (T([0.0, 0.0, 0.0, 2.0]), T([0.0, inf, 2.0, 3.0]))
    yield "in place of halves", lambda a, b: a.clone().mul_(b), (HALVES[3:7], T([0.1, 1e-9, 3e5, 0.3]))
    yield (
        "fills",
        lambda x: (
            x.clone().fill_(2),
            x.clone().zero_(),
            torch.full_like(x, 3),
            torch.ones_like(x),
            x.new_full((2,), 5),
            x.new_ones(2),
            x.new_zeros(2),
            torch.zeros_like(x),
        ),
        (FINITE,),
    )
    yield "conversions", lambda x: (x.int(), x.half(), x.bool(), x.clone().copy_(x * 2), x.contiguous()), (FINITE,)
    yield (
        "elu",
        lambda x: (F.elu(x, 0.3), F.celu(x, 0.3), F.celu(x, -2.0), F.leaky_relu(x, -0.3), F.hardtanh(x, -2, 0.5)),
        (FINITE,),
    )
    yield (
        "thresholds",
        lambda x: (F.threshold(x, 0.5, -7.0), F.hardshrink(x, 0.0), F.softshrink(x, 1.0), F.softplus(x, 2.0, 1)),
        (FINITE,),
    )
    yield (
        "slopes",
        lambda x: (F.prelu(x, T([-0.5])), F.rrelu(x, 0.2, 0.4), F.gelu(x, approximate="tanh"), F.glu(x)),
        (FINITE,),
    )


def reductions() -> Iterator[Case]:
    arrays = (TIES, SCALAR, COLUMN, (numbers(3, 4) * 20).half(), numbers(3, 4))
    for name in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "var", "std", "norm", "nansum"):
        for x in (*arrays, ROWS):
            function = detached(getattr(torch, name)) if x is ROWS else getattr(torch, name)
            yield name, lambda x, f=function: (f(x, dim=-1), f(x, dim=0, keepdim=True)), (x,)
    for name, x in itertools.product(("max", "min", "median"), (*arrays, ROWS[1:], INTEGERS)):
        function = getattr(torch, name)
        yield name, lambda x, f=function: (f(x), *f(x, dim=-1), *f(x, dim=0, keepdim=True)), (x,)
    for name, x in itertools.product(
        ("argmax", "argmin", "any", "all", "count_nonzero"), (*arrays, ROWS, INTEGERS, TRUTHS)
    ):
        if name.startswith("arg") and x.dtype is torch.bool:
            continue
        yield name, lambda x, n=name: (getattr(torch, n)(x), getattr(torch, n)(x, dim=-1)), (x,)
    yield "any of no axes", lambda x: (x.any(dim=()), x.all(dim=()), x[:0].any(), x[:0].all(0)), (TIES,)
    yield "aminmax", lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)), (numbers(3, 4),)
    for x in (TIES, SCALAR, ROWS):
        yield "cumsum", lambda x: (x.cumsum(0), x.cumprod(-1)), (x[1:2] if x is ROWS else x,)
        yield (
            "sort",
            lambda x: (
                *x.sort(dim=-1, stable=True),
                *x.sort(dim=0, descending=True, stable=True),
                x.argsort(dim=-1, stable=True),
            ),
            (x,),
        )
        yield "topk", lambda x: (x.detach().topk(1)[0], x.detach().topk(1, largest=False)[0]), (x,)
    yield "cumsum of halves", detached(lambda x: (x.cumsum(1), x.cumprod(-1), x.norm(dim=1), x.std(1))), (BIG_HALVES,)
    for correction in (0, 2, 0.5):
        yield (
            f"correction {correction}",
            lambda x, c=correction: (*torch.var_mean(x, dim=0, correction=c), *torch.std_mean(x, correction=c)),
            (numbers(3, 4),),
        )
    for order in (0, 1, 3, 0.5, -1, inf, -inf):
        yield (
            f"norm {order}",
            lambda x, p=order: (torch.norm(x, p, dim=-1), torch.linalg.vector_norm(x, p)),
            (TIES[:2] if abs(order) == inf else TIES,),
        )
    yield "softmax", lambda x: (x.softmax(-1), x.log_softmax(-1)), (ROWS[1:2],)
    yield "softmax of a scalar", lambda x: (x.softmax(0), x.log_softmax(0), x.cumsum(0), x.flip(0)), (SCALAR,)
    for right in (False, True):
        yield (
            "searchsorted",
            lambda x, r=right: (
                torch.searchsorted(T([-1.0, 0.0, 0.0, 2.5]), x, right=r),
                torch.bucketize(x, T([-1.0, 0.0, 2.5]), right=r),
            ),
            (FLOATS,),
        )
    yield (
        "distances",
        lambda x: (
            torch.cdist(x, x.flip(0), 1),
            torch.cdist(x, x.flip(0), 0.5),
            torch.cdist(x, x.flip(0), 0),
            torch.cdist(x, x),
        ),
        (TIES,),
    )
    yield (
        "normalise",
        lambda x: (
            F.normalize(x, 1, -1),
            F.cosine_similarity(x, x.flip(0) + 1, -1),
            F.rms_norm(x, (4,)),
            F.layer_norm(x, (4,), eps=1.0),
        ),
        (numbers(3, 4),),
    )
    yield (
        "norms of halves",
        lambda x: (F.rms_norm(x, (4,)), x.norm(dim=1), x.std(1), F.cosine_similarity(x, x.flip(0), -1)),
        (BIG_HALVES[1:],),
    )
    yield (
        "empty",
        lambda x: (x[:0].sum(0), x[:0].mean(), x[:0].prod(0), torch.cat([x, x[:0]]), x[:, :0] @ x.t()[:0]),
        (numbers(3, 4),),
    )


def indexing() -> Iterator[Case]:
    x, source = numbers(3, 4), numbers(2, 3)
    for reduction, own in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
        yield (
            f"scatter_reduce {reduction}",
            lambda x, i, s, a=(reduction, own): x.scatter_reduce(0, i, s, a[0], include_self=a[1]),
            ((x * 10).int(), INDEX, (source * 10).int()),
        )
        if reduction != "prod":
            yield (
                f"scatter_reduce {reduction}",
                lambda x, i, s, a=(reduction, own): (
                    x.detach().scatter_reduce(0, i, s.detach(), a[0], include_self=a[1]) + x
                ),
                (x, INDEX, source),
            )
        if reduction != "sum":
            yield (
                f"index_reduce {reduction}",
                lambda x, i, s, a=(reduction, own): x.index_reduce(0, i, s, a[0], include_self=a[1]),
                ((x * 10).int(), T([0, 2, 0]), (x.flip(0) * 10).int()),
            )
    yield (
        "scatter",
        lambda x, i, s: (x.scatter(1, T([[2, 0, 3]]), s[:1]), x.scatter(0, i, 2.5), x.scatter_add(1, i, s)),
        (x, INDEX, source),
    )
    yield (
        "gather",
        lambda x, i: (x.gather(0, i), x.gather(-1, i), x[0].gather(0, T(1)), T(3.0).mul(x[0, 0]).gather(0, T(0))),
        (x, INDEX),
    )
    yield (
        "select",
        lambda x, i: (
            x.index_select(1, i),
            x.take(T([-1, 5])),
            x[i],
            x[i, i],
            x[:, None].expand(3, 2, 4)[i, :, i],
            x[T([True, False, True])],
        ),
        (x, T([0, -1, 2]).abs()),
    )
    yield "index_fill", lambda x, i: (x.index_fill(0, i, 7), x.index_fill(1, T([-1]), 7)), (x, T([-1, 0]))
    yield (
        "index_add",
        lambda x, i, s: (x.index_add(0, i, s, alpha=2), x.index_copy(1, T([0, 3]), s[:, :2])),
        (x, T([0, 0, 2]), numbers(3, 4)),
    )
    yield (
        "index_put",
        lambda x, i, s: (x.index_put((i,), s, True), x.index_put((i, i), s[:, 0])),
        (x, T([0, 2, -2]), numbers(3, 4)),
    )
    yield (
        "masks",
        lambda x: (
            put(x, x > 0, 3),
            put(x, x[:, 0] > 0, 3),
            put(x, (slice(1, None), slice(None, None, 2)), x[0, :2]),
        ),
        (x,),
    )
    yield (
        "embedding",
        lambda w, i: (F.embedding(i, w, padding_idx=2), F.embedding(T(1), w)),
        (numbers(5, 3), T([[0, 2, 4], [2, 2, 1]])),
    )
    for mode in ("sum", "mean", "max"):
        yield (
            f"embedding_bag {mode}",
            lambda w, i, m=mode: F.embedding_bag(i, w, T([0, 0, 3, 5]), mode=m),
            (numbers(5, 3), T([0, 2, 4, 1, 3])),
        )
    yield "one_hot", lambda i: (F.one_hot(i, 4), torch.bincount(i.reshape(-1), minlength=4)), (T([[0, 3], [1, 1]]),)
    yield "slices", lambda x, s: (x.slice_scatter(s, 1, -2), x.select_scatter(s[:, 0], -1, -2)), (x, numbers(3, 2))


def put(x: torch.Tensor, places: Any, value: Any) -> torch.Tensor:
    y = x.clone()
    y[places] = value
    return y


def shapes() -> Iterator[Case]:
    x = numbers(3, 4)
    views = {
        "transposed": lambda x: x.t(),
        "flipped": lambda x: x.flip(0),
        "expanded": lambda x: x[:1].expand(3, 4),
        "overlapping": lambda x: x.as_strided((3, 3), (2, 1)),
        "windows": lambda x: x.view(-1).unfold(0, 4, 2),
        "every second": lambda x: x[:, ::2],
        "diagonal": lambda x: x.diagonal(),
    }
    for name, view in views.items():
        yield (
            name,
            lambda x, v=view: (v(x).sum(0), v(x).cumsum(0), v(x).reshape(-1) * 2, v(x).exp(), v(x).argmax()),
            (x,),
        )
        if name != "expanded" and name not in ("overlapping", "windows"):
            yield f"{name} changed", lambda x, v=view: changed(x, v), (x,)
    yield (
        "views",
        lambda x: (
            x.movedim(0, 1),
            x.permute(1, 0),
            x.transpose(0, 1),
            x[None].squeeze(0),
            x.unsqueeze(1),
            x.view(2, 6),
            x.flatten(),
            x.narrow(1, 1, 2),
            x[1:, 2],
            x.unbind(1)[1],
            x.split([1, 3], 1)[1],
            x.chunk(2, 1)[0],
            x.detach() + x,
        ),
        (x,),
    )
    yield (
        "joins",
        lambda x: (
            torch.cat([x, x.flip(0)]),
            torch.stack([x, x], -1),
            x.repeat(2, 1, 2),
            x.repeat_interleave(3, -1),
            x.roll((1, -1), (0, 1)),
            x.roll(5),
        ),
        (x,),
    )
    yield "padding", lambda x: (F.pad(x, (1, 0, 2, -1), value=-inf), F.pad(x, (-1, 1)), x.tril(-1), x.triu(1)), (x,)
    for rank, mode in itertools.product((1, 2, 3), ("reflect", "replicate")):
        yield (
            f"{mode} {rank}",
            lambda x, m=mode, n=rank: F.pad(x, (1, 2, 1, 0, 2, 1)[: 2 * n], mode=m),
            (numbers(1, 2, *(4, 5, 4)[:rank]),),
        )
    yield (
        "pixels",
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)),
        (numbers(1, 4, 2, 2),),
    )


def inner() -> Iterator[Case]:
    """Ops that PyTorch's own functions call."""
    aten, x, index = torch.ops.aten, numbers(3, 4), [T([0, 2])]
    yield (
        "views",
        lambda x: (aten._reshape_alias(x, [12], [1]), aten.alias(x) * 2, aten._unsafe_index(x, index)),
        (x,),
    )
    yield "lifts", detached(lambda x: (aten.lift_fresh(x) * 2, aten.lift_fresh_copy(x))), (x,)
    yield "splits", lambda x: (aten.unsafe_split(x, 2, 1)[1], aten.unsafe_split_with_sizes(x, [1, 3], 1)[1]), (x,)
    yield "writes", detached(lambda x: aten._index_put_impl(x, [T([0])], x[1])), (x,)
    yield "distances", lambda x: aten._euclidean_dist(x, x.flip(0) + 1), (x,)
    yield "norm", lambda x: (aten.norm(x, 3, [1]), aten.norm(x)), (x,)
    yield "bags", detached(lambda w: F.embedding_bag(T([0, 2, 1]), w, T([0, 0, 2]))), (x,)
    statistics = T([0.1, 0.2, 0.3]), T([1.0, 2.0, 0.5])
    yield (
        "batch norm",
        detached(
            lambda x: (
                aten._native_batch_norm_legit(x, None, None, *(s.clone() for s in statistics), True, 0.1, 0.1)[0],
                aten._native_batch_norm_legit_no_training(x, None, None, *statistics, 0.1, 0.1)[0],
            )
        ),
        (numbers(2, 3, 4),),
    )
    pool = F.adaptive_avg_pool2d, F.adaptive_avg_pool3d
    yield "adaptive", lambda x: (pool[0](x, 2), pool[1](x[None], 2)), (numbers(2, 2, 4, 4),)


def changed(x: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
    y = x * 1
    part = view(y)
    part.add_(1).mul_(2)
    y[0] -= 1
    return y, part * 1


def windows() -> Iterator[Case]:
    for rank in (1, 2, 3):
        size = (7, 6, 5)[:rank]
        x, w = numbers(2, 3, *size), numbers(4, 3, *[3] * rank)
        ties = x.round().clamp(0, 1)
        maximum, average = getattr(F, f"max_pool{rank}d"), getattr(F, f"avg_pool{rank}d")
        convolution, transposed = getattr(F, f"conv{rank}d"), getattr(F, f"conv_transpose{rank}d")
        for stride, padding, ceil in ((1, 0, False), (2, 1, True), (3, 1, False)):
            yield (
                f"max_pool{rank}d",
                lambda x, a=(stride, padding, ceil), f=maximum: f(x, 3, a[0], a[1], 1, a[2]),
                (ties,),
            )
            yield (
                f"avg_pool{rank}d",
                lambda x, a=(stride, padding, ceil), f=average: (f(x, 3, *a, True), f(x, 3, *a, False)),
                (x,),
            )
        for kind in ("avg", "max"):
            yield (
                f"adaptive {kind} {rank}",
                lambda x, n=f"adaptive_{kind}_pool{rank}d": getattr(F, n)(x, 1),
                (ties if kind == "max" and rank == 2 else x,),
            )
        modes = (
            "nearest",
            "nearest-exact",
            ("linear", "bilinear", "trilinear")[rank - 1],
            *(("bicubic",) if rank == 2 else ()),
        )
        for mode, options in itertools.product(
            modes, ({"size": 4}, {"scale_factor": 1.7}, {"scale_factor": 0.6, "recompute_scale_factor": True})
        ):
            yield f"{mode} {rank}", lambda x, m=mode, o=options: F.interpolate(x, mode=m, **o), (x[:1, :1],)
        yield (
            f"convolution {rank}",
            lambda x, w, f=convolution: (
                f(x, w, None, 2, 1),
                f(x, w, padding="same", dilation=2),
                f(x[0], w),
            ),
            (x, w),
        )
        yield (
            f"transposed {rank}",
            lambda x, w, f=transposed: f(x, w.transpose(0, 1), None, 1, 1, 1, 1, 2),
            (numbers(1, 3, *size), w),
        )
        yield (
            f"norms {rank}",
            lambda x, w: (
                F.batch_norm(x, torch.zeros(3), torch.ones(3), w, None, True, 0.7, 0.5),
                F.batch_norm(x, T([0.1, 0.2, 0.3]), T([1.0, 2.0, 0.5]), w, w),
                F.instance_norm(x, eps=0.1),
                F.group_norm(x, 3, w, w),
            ),
            (x, numbers(3)),
        )
    yield "weight norm", lambda v, g: torch._weight_norm(v, g, 0), (numbers(3, 4), numbers(3, 1))


def products() -> Iterator[Case]:
    a, b, c = numbers(2, 3), numbers(3, 4), numbers(4)
    for alpha, beta in ((2, 0.5), (1, 0), (-1, 1)):
        yield (
            "addmm",
            lambda c, a, b, k=(alpha, beta): (
                torch.addmm(c, a, b, alpha=k[0], beta=k[1]),
                torch.addmv(c[:2], a, b[:, 0], alpha=k[0], beta=k[1]),
                torch.baddbmm(c, a[None], b[None], alpha=k[0], beta=k[1]),
            ),
            (c, a, b),
        )
    for beta in (0, 1, 0.5):
        yield (
            "alpha of 0",
            detached(
                lambda c, a, b, k=beta: (
                    torch.addmm(c, a, b, alpha=0, beta=k),
                    torch.addmv(c[:2], a, b[:, 0], alpha=0, beta=k),
                    torch.baddbmm(c, a[None], b[None], alpha=0, beta=k),
                )
            ),
            (c, T([[nan, 1.0, 2.0], [3.0, inf, 0.0]]), b),
        )
    yield (
        "matmul",
        lambda a, b: (
            a @ b,
            a[0] @ b,
            a @ b[:, 0],
            a[0] @ b[:, 0],
            torch.mm(a, b),
            torch.mv(a, b[:, 0]),
            torch.dot(a[0], b[:, 0]),
            torch.vdot(a[0], b[:, 0]),
            torch.outer(a[0], b[0]),
            a[None] @ b,
            torch.bmm(a[None], b[None]),
        ),
        (a, b),
    )
    yield "nan in products", lambda a, b: a @ b, (T([[0.0, nan, 1.0], [0.0, 0.0, inf]]), b)
    yield (
        "integers",
        lambda a, b: (a @ b, a * 50000 @ b),
        (T([[1, 2], [3, 4]], dtype=torch.int32), T([[5, 6], [7, 40001]], dtype=torch.int32)),
    )
    yield "einsum", lambda a, b: (torch.einsum("ij,jk->ki", a, b), torch.einsum("ij->j", a)), (a, b)
    yield "bilinear", F.bilinear, (numbers(2, 3), numbers(2, 4), numbers(5, 3, 4), numbers(5))
    yield "linear", F.linear, (numbers(2, 3, 4), numbers(5, 4), numbers(5))
    yield "cross", lambda a, b: torch.linalg.cross(a, b, dim=0), (numbers(3, 2), numbers(3, 1))
    for layer in (
        torch.nn.LSTM(3, 2, 2, bidirectional=True),
        torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
        torch.nn.LSTM(3, 4, 2, bias=False, proj_size=2),
        torch.nn.GRU(3, 2),
        torch.nn.RNN(3, 2),
        torch.nn.RNN(3, 2, nonlinearity="relu", bias=False),
    ):
        layer.requires_grad_(requires_grad=False)
        yield type(layer).__name__, lambda x, m=layer: m(x), (numbers(4, 2, 3),)
    masks = T([[True] * 3, [False] * 3, [True] * 3])
    yield (
        "attention of a masked row",
        lambda q: F.scaled_dot_product_attention(q, q, q, masks, scale=0.3),
        (numbers(1, 2, 3, 4),),
    )


def losses() -> Iterator[Case]:
    logits, targets = numbers(4, 5), T([0, 4, -100, 2])
    weights = T([1.0, 0.0, 0.5, 2.0, 1.0])
    for reduction, weight, smooth in itertools.product(("mean", "sum", "none"), (None, weights), (0.0, 0.1)):
        for t in (targets, torch.full((4,), -100)):
            yield (
                f"cross_entropy {reduction}",
                lambda x, t, a=(weight, reduction, smooth): F.cross_entropy(
                    x, t, a[0], reduction=a[1], label_smoothing=a[2]
                ),
                (logits, t),
            )
        yield (
            f"nll 2-D {reduction}",
            lambda x, t, a=(weight, reduction): F.nll_loss(x, t, a[0], ignore_index=1, reduction=a[1]),
            (numbers(2, 5, 3, 2), T([[[0, 1], [2, 3], [4, 1]]] * 2)),
        )
    yield (
        "ignored NaN",
        lambda x, t: F.cross_entropy(x, t, weights, reduction="none"),
        (T([[nan, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0]]).detach(), T([-100, 3])),
    )
    x, t = T([0.0, 1.0, -1.0, 0.5, inf, 2.0, 100.0, -100.0]), T([0.0, 1.0, 1.0, 0.5, 0.0, 2.0, 0.2, 0.3])
    for reduction in ("mean", "sum", "none"):
        yield (
            f"pairs {reduction}",
            lambda a, b, r=reduction: (
                F.mse_loss(a, b, reduction=r),
                F.smooth_l1_loss(a, b, reduction=r, beta=0.5),
                F.huber_loss(a, b, reduction=r, delta=0.3),
                F.soft_margin_loss(a, b.detach(), reduction=r),
                F.binary_cross_entropy_with_logits(a, b, reduction=r, pos_weight=T(3.0)),
            ),
            (x[:4], t[:4]),
        )
        yield (
            f"entropy {reduction}",
            lambda a, b, r=reduction: F.binary_cross_entropy(a, b.detach(), T([0.5] * 4), reduction=r),
            (T([0.0, 1.0, 0.5, 0.3]), T([0.0, 1.0, 0.5, 1.0])),
        )
        for logs, full in itertools.product((True, False), (True, False)):
            yield (
                f"poisson {reduction}",
                lambda a, b, k=(logs, full, reduction): F.poisson_nll_loss(a, b, k[0], k[1], eps=0.1, reduction=k[2]),
                (T([0.0, 1.0, 0.5, 2.0]), T([0.0, 1.0, 2.0, 5.0])),
            )
        yield (
            f"ctc {reduction}",
            lambda x, t, r=reduction: F.ctc_loss(x.log_softmax(2), t, T([5, 4]), T([3, 0]), 2, r, True),
            (numbers(5, 2, 4), T([[1, 3, 3], [3, 1, 1]])),
        )
    yield (
        "infinite differences",
        lambda a, b: (
            F.smooth_l1_loss(a, b, reduction="none"),
            F.binary_cross_entropy_with_logits(a, b, reduction="none"),
        ),
        (x, t),
    )


FAMILIES = {f.__name__: f for f in (elementwise, reductions, indexing, shapes, inner, windows, products, losses)}
