"""Argument cases: calls of ATen ops with arguments off their defaults that edge cases and layers do not give.

``arguments`` yields cases that PyTorch computes too, ``REFUSED`` has the calls that the device refuses, by the names
of op and argument, and ``DRAWN`` functions of random numbers, whose distributions are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from tests.ipu_emu.helpers.edge_cases import Case, T, detached, numbers

ATEN = torch.ops.aten
#: Functions that a trace handles before they are ATen ops.
FUNCTIONS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)
X, TRUTHS = numbers(3, 4), T([[True, False, True, True], [False] * 4, [True] * 4])

#: Arguments of a recurrent layer off their defaults.
LAYERS: tuple[dict[str, Any], ...] = (
    {"num_layers": 2, "dropout": 1.0},
    {"bias": False, "batch_first": True},
    {"bidirectional": True},
    {"proj_size": 1},
)


def arguments() -> Iterator[Case]:
    yield from of_reductions()
    yield from of_indices()
    yield from of_factories()
    yield "strides", lambda x: (x.as_strided((2, 2), (4, 1), 3), x.diagonal(-1, 1, 0), x.expand(2, 3, 4)), (X,)
    yield "implied", lambda x: ATEN.expand(x, [2, 3, 4], implicit=True) * 1, (X,)
    yield "joined", lambda x: (torch.cat([x, x], 1), torch.stack([x, x], 1), F.glu(x, 0)), (numbers(4, 2),)
    yield "weight norm", lambda v, g: torch._weight_norm(v, g, 1), (X, numbers(1, 4))
    yield (
        "products",
        lambda a, b, c: ATEN._trilinear(a, b, c, [1, 3], [0], [1, 2], [2, 3], 0),
        (numbers(2, 3), numbers(5, 3, 4), numbers(2, 4)),
    )
    for rank in (2, 3):
        image = numbers(1, 1, *(5, 7, 5)[:rank])
        yield "scales", lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest-exact"), (image,)
    yield "elu", lambda x: ATEN.elu(x, 0.7, 1.3, 0.5), (X,)
    yield "clones", lambda x: x.clone(memory_format=torch.channels_last) * 1, (numbers(1, 2, 2, 3),)
    yield "results in a tensor", detached(lambda x: torch.add(x, 1, out=torch.empty(3, 4))), (X,)
    yield "copies", lambda x: torch.zeros(3, 4).copy_(x, non_blocking=True), (X,)
    yield (
        "weights",
        lambda x, w: F.binary_cross_entropy_with_logits(x, w.detach(), w.detach()),
        (X, X.abs()),
    )
    yield (
        "dropped in place",
        lambda x: [f(y := x * 1, 1.0, True, True) + y for f in FUNCTIONS[:2]],
        (numbers(2, 3, 2),),
    )
    for options in LAYERS:
        layer = torch.nn.LSTM(3, 2, **options).requires_grad_(requires_grad=False)
        yield f"LSTM {options}", lambda x, m=layer: m(x)[0], (numbers(4, 2, 3),)
    for rank in (2, 3):
        pool = getattr(F, f"max_pool{rank}d")
        yield "dilation", lambda x, f=pool: f(x, 2, 1, 1, 2), (numbers(1, 2, *(7, 6, 5)[:rank]),)


def of_reductions() -> Iterator[Case]:
    yield "any", lambda x: (x.any(1, keepdim=True), x.all(0, keepdim=True), x.any((0, 1), keepdim=True)), (TRUTHS,)
    yield "all", lambda x: x.all((0, 1), keepdim=True), (TRUTHS,)
    yield "arg", lambda x: (x.argmax(1, keepdim=True), x.argmin(0, keepdim=True)), (X,)
    yield "aminmax", lambda x: (*torch.aminmax(x, dim=1, keepdim=True),), (X,)
    half, single = torch.float16, torch.float32
    for name in ("sum", "mean", "nansum", "cumsum", "cumprod", "prod"):
        function = getattr(torch, name)
        yield f"half {name}", detached(lambda x, f=function: f(x, 1, dtype=half)), (X,)
        yield f"single {name}", lambda x, f=function: f(x, 1, dtype=single), (X.half(),)
    yield "types", lambda x: (x.sum(dtype=half), x.mean(dtype=half), x.prod(dtype=half)), (X,)
    yield "integers", lambda x: (x.sum(dtype=torch.float32), x.cumsum(0, dtype=torch.float32)), ((X * 9).int(),)
    yield "norms", lambda x: (ATEN.norm(x, 2, [1], True, dtype=single), ATEN.norm(x, 2, dtype=single)), (X.half(),)
    yield "vector norm", lambda x: torch.linalg.vector_norm(x, 3, 1, keepdim=True, dtype=single), (X.half(),)
    yield "kept", lambda x: (ATEN.norm(x, 3, [0], True), *torch.std_mean(x, 1, keepdim=True)), (X,)
    yield "variance", lambda x: (*torch.var_mean(x, (0, 1), keepdim=True), *torch.std_mean(x, (0,))), (X,)
    yield "corrected", lambda x: (x.std(0, correction=0), x.var(0, correction=2), ATEN._safe_softmax(x, 0)), (X,)
    yield "safe", detached(lambda x: ATEN._safe_softmax(x, 0, single)), (X.half(),)
    yield "similar", detached(lambda x: F.cosine_similarity(x, x.flip(0) * 1e-2, 0, 0.5)), (X,)
    yield "top", lambda x: (*x.topk(2, 0), x.topk(2, 1, sorted=False)[0].sum(1)), (X,)


def of_indices() -> Iterator[Case]:
    yield (
        "searchsorted",
        lambda x: (
            torch.searchsorted(T([-1.0, 0.5, 0.5]), x, side="right"),
            torch.searchsorted(T([-1.0, 0.5]), x, out_int32=True),
            torch.bucketize(x, T([-1.0, 0.5]), out_int32=True),
        ),
        (T([[0.5, -1.0], [3.0, -2.0]]),),
    )
    yield "bincount", detached(lambda i, w: torch.bincount(i, w, minlength=6)), (T([0, 3, 3, 1]), numbers(4))
    index = T([[2, 0, 2], [1, 1, 0]])
    for reduction in ("add", "multiply"):
        yield (
            f"scatter {reduction}",
            detached(
                lambda x, s, r=reduction: (x.scatter(0, index, s, reduce=r), x.scatter(0, index, 2.5, reduce=r))
            ),
            (X, numbers(2, 3)),
        )
    yield "gather", lambda x: x.gather(0, index, sparse_grad=True), (X,)
    yield "embedding", lambda w: F.embedding(index, w, sparse=True), (X,)
    for kind in (lambda f: f, detached):
        bag = kind(lambda w, k: F.embedding_bag(T([0, 2, 1, 1]), w, T([0, 1]), mode="sum", per_sample_weights=k))
        yield "weighted bags", bag, (X, numbers(4))
        yield "bags", kind(lambda w: F.embedding_bag(T([0, 2, 1]), w, T([0, 1]), mode="sum", sparse=True)), (X,)
    yield "classes", lambda x: F.one_hot(x, 7), (index,)
    yield "largest of bags", lambda w: F.embedding_bag(T([0, 2, 1, 1]), w, T([0, 2]), mode="max"), (X,)
    yield "writes", detached(lambda x: ATEN._index_put_impl(x, [T([0, 0])], x[1:], True, True)), (X,)
    yield "slice", lambda x, s: x.slice_scatter(s, 1, end=2), (X, numbers(3, 2))
    yield "repeats", lambda x: x.repeat_interleave(T([1, 0, 2]), 0, output_size=3), (X,)


def of_factories() -> Iterator[Case]:
    half, strided = torch.float16, {"layout": torch.strided, "device": "cpu", "dtype": torch.float16}
    for name in ("full_like", "ones_like", "zeros_like"):
        value = (2.5,) if name == "full_like" else ()
        yield (
            name,
            lambda x, n=name, v=value: (
                getattr(torch, n)(x, *v, **strided),
                getattr(torch, n)(x, *v, memory_format=torch.contiguous_format) * x,
            ),
            (X,),
        )
    yield (
        "new",
        lambda x: (
            x.new_full((2,), 3, **strided),
            x.new_ones(2, **strided),
            x.new_zeros(2, **strided),
            x.to(half, non_blocking=True),
        ),
        (X,),
    )


#: Random numbers from a column of 4096 ones: mean and deviation are compared, and that repeated numbers differ.
DRAWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "bernoulli": lambda x: (torch.bernoulli(x * 0.3), torch.bernoulli(x, 0.8), x.clone().bernoulli_(0.2)),
    "bernoulli of tensors": lambda x: x.clone().bernoulli_(x * 0.7),
    "exponential": lambda x: x.clone().exponential_(4.0),
    "native_dropout": lambda x: (ATEN.native_dropout(x, 0.3, True)[0], ATEN.native_dropout(x, 0.3, False)[0]),
    "normal": lambda x: (x.clone().normal_(3.0, 0.5), torch.normal(x * 2, 0.1), torch.normal(1.0, x * 3)),
    "normal of tensors": lambda x: torch.normal(x * 2, x * 3),
    "normal of numbers": lambda x: ATEN.normal(2.0, 3.0, [4096, 1], **HALF) * x,
    "rand": lambda x: torch.rand(4096, 1, **HALF) * x,
    "rand_like": lambda x: torch.rand_like(x, memory_format=torch.contiguous_format, **HALF),
    "randint": lambda x: (torch.randint(7, (4096,), **INT), torch.randint(5, 9, (4096, 1), **HALF) * x),
    "randint_like": lambda x: (
        torch.randint_like(x, 7, **INT),
        torch.randint_like(x, 5, 9, memory_format=torch.contiguous_format, **HALF),
    ),
    "randn": lambda x: torch.randn(4096, 1, **HALF) * x,
    "randn_like": lambda x: torch.randn_like(x, memory_format=torch.contiguous_format, **HALF),
    "random": lambda x: (x.clone().random_(3, 9), x.clone().random_(5), x.int().random_(2, 2**20)),
    "randperm": lambda x: torch.randperm(4096, **INT) + x[:, 0],
    "rrelu": lambda x: F.rrelu(-x, 0.1, 0.9, training=True),
    "uniform": lambda x: (x.clone().uniform_(-2.0, 5.0), x.clone().uniform_()),
    **{
        f"dropout {function.__name__}": lambda x, f=function, n=rank: tuple(
            f(x.reshape(4, 1024, *(1,) * n) * 2, *arguments).reshape(4096, 1)
            for arguments in ((0.3, True), (0.3, False), (0.6, True, True))
        )
        for rank, function in enumerate(FUNCTIONS)
    },
}
_HOST = {"layout": torch.strided, "device": "cpu", "pin_memory": False}
HALF, INT = {"dtype": torch.float16, **_HOST}, {"dtype": torch.int32, **_HOST}


def bag_of(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.embedding_bag(T([0, 2, 1]), x, T([0, 1]), mode="sum", **options)


_GENERATOR = torch.Generator()


def _generated(name: str, *values: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: getattr(torch, name)(*values, generator=_GENERATOR) * x.sum()


def _filled(name: str) -> Callable[[torch.Tensor], Any]:
    return lambda x: getattr(x.clone(), name)(generator=_GENERATOR)


#: (op, argument, ...): a call that is refused, and a word of the message.
REFUSED: dict[tuple[str, ...], tuple[Callable[[torch.Tensor], Any], str]] = {
    **{(name, "generator"): (_filled(f"{name}_"), "generator") for name in (
        "bernoulli", "exponential", "normal", "random", "uniform",
    )},
    ("rand", "generator"): (_generated("rand", 2), "generator"),
    ("randn", "generator"): (_generated("randn", 2), "generator"),
    ("randint", "generator"): (_generated("randint", 5, (2,)), "generator"),
    ("randperm", "generator"): (_generated("randperm", 5), "generator"),
    ("rand_like", "generator"): (lambda x: torch.rand_like(x, generator=_GENERATOR), "generator"),
    ("randn_like", "generator"): (lambda x: torch.randn_like(x, generator=_GENERATOR), "generator"),
    ("randint_like", "generator"): (lambda x: torch.randint_like(x, 9, generator=_GENERATOR), "generator"),
    ("rrelu_with_noise", "generator"): (
        lambda x: ATEN.rrelu_with_noise(x, torch.zeros(3, 4), 0.1, 0.3, True, _GENERATOR), "generator",
    ),
    ("avg_pool2d", "divisor_override"): (lambda x: F.avg_pool2d(x[None], 2, divisor_override=3), "divisor_override"),
    ("avg_pool3d", "divisor_override"): (
        lambda x: F.avg_pool3d(x[None, None], (1, 2, 2), divisor_override=3), "divisor_override",
    ),
    ("embedding", "scale_grad_by_freq"): (
        lambda x: F.embedding(T([0, 1]), x, scale_grad_by_freq=True), "scale_grad_by_freq",
    ),
    ("_embedding_bag", "scale_grad_by_freq"): (
        lambda x: F.embedding_bag(T([0, 1]), x, T([0]), scale_grad_by_freq=True), "scale_grad_by_freq",
    ),
    ("_embedding_bag_forward_only", "scale_grad_by_freq"): (
        lambda x: ATEN._embedding_bag_forward_only(x, T([0, 1]), T([0]), True), "scale_grad_by_freq",
    ),
    **{
        (name, argument): (lambda x, n=name, a=value: bag_of(x.detach() if n.endswith("only") else x, **a), argument)
        for name in ("_embedding_bag", "_embedding_bag_forward_only")
        for argument, value in (
            ("include_last_offset", {"include_last_offset": True}), ("padding_idx", {"padding_idx": 2}),
        )
    },
    ("searchsorted", "sorter"): (lambda x: torch.searchsorted(T([1.0, -1.0]), x, sorter=T([1, 0])), "sorter"),
    ("masked_select", "self", "mask"): (lambda x: x.masked_select(x > 0), "masked_select"),
    ("nonzero", "self"): (lambda x: x.nonzero(), "nonzero"),
    ("_unique2", "self", "sorted", "return_inverse", "return_counts"): (
        lambda x: torch.unique(x, False, True, True), "unique",
    ),
    ("slice_scatter", "step"): (lambda x: x.slice_scatter(x[:, ::2], 1, step=2), "step"),
    **{
        (name, "layout", "device"): (lambda x, n=name: getattr(x, n)((2,), device="meta"), "device")
        for name in ("new_ones", "new_zeros")
    },
    ("zeros_like", "layout"): (lambda x: torch.zeros_like(x, layout=torch.sparse_coo), "layout"),
    **{
        (name, "layout", "device"): (lambda x, n=name: getattr(torch, n)(x, device="meta"), "device")
        for name in ("ones_like", "rand_like", "randn_like", "zeros_like")
    },
    ("new_full", "layout", "device"): (lambda x: x.new_full((2,), 1, device="meta"), "device"),
    ("full_like", "layout", "device"): (lambda x: torch.full_like(x, 1, device="meta"), "device"),
    ("randint_like", "layout", "device"): (lambda x: torch.randint_like(x, 9, device="meta"), "device"),
    ("rand", "layout", "device"): (lambda x: x.sum() * torch.rand(2, device="meta"), "device"),
    ("randn", "layout", "device"): (lambda x: x.sum() * torch.randn(2, device="meta"), "device"),
    ("randint", "layout", "device"): (lambda x: x.sum() * torch.randint(9, (2,), device="meta"), "device"),
    ("randperm", "layout", "device"): (lambda x: x.sum() * torch.randperm(9, device="meta"), "device"),
    ("normal", "layout", "device"): (lambda x: x.sum() * ATEN.normal(2.0, 3.0, [4], device="meta"), "device"),
    ("_to_copy", "layout", "device"): (lambda x: x.to("meta"), "device"),
    ("mm", "out_dtype"): (lambda x: ATEN.mm.dtype(x.half(), x.t().half(), torch.float32), "out_dtype"),
    ("bmm", "out_dtype"): (lambda x: ATEN.bmm.dtype(x[None].half(), x.mT[None].half(), torch.float32), "out_dtype"),
    ("addmm", "out_dtype"): (
        lambda x: ATEN.addmm.dtype(x[:, 0].half(), x.half(), x.t().half(), torch.float32), "out_dtype",
    ),
    ("baddbmm", "out_dtype"): (
        lambda x: ATEN.baddbmm.dtype(x[:, 0].half(), x[None].half(), x.mT[None].half(), torch.float32), "out_dtype",
    ),
    ("view", "dtype"): (lambda x: x.view(torch.int32), "dtype"),
}  # fmt: skip
