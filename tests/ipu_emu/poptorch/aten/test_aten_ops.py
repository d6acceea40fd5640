"""ATen ops: value and gradient of each, compared with eager PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.poptorch.aten.table import RULES  # noqa: E402

pytestmark = pytest.mark.torch


def r(*shape: int) -> Any:
    return torch.randn(*shape)


def positive(*shape: int) -> Any:
    return torch.rand(*shape) + 0.5


INDEX = [[2, 0], [1, 1]]
SCALE, SHIFT = torch.rand(4), torch.rand(4)
TARGETS = torch.randint(0, 3, (2, 4, 4))
SHARES = torch.rand(3, 4)

#: name: (function of x and perhaps other tensors, x)
CASES: dict[str, tuple[Callable[..., Any], Any]] = {}


def case(name: str, function: Callable[..., Any], x: Any = None) -> None:
    assert name not in CASES
    torch.default_generator.manual_seed(len(CASES))  # not those of other devices, which takes 40 ms
    CASES[name] = (function, r(3, 4) if x is None else x)


for name in [
    "abs",
    "atan",
    "asinh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "neg",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "sigmoid",
    "square",
]:
    case(name, getattr(torch, name))
for name in ["log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "acosh", "exp2"]:
    case(name, getattr(torch, name), positive(3, 4) + 1)
for name in ["acos", "asin", "atanh"]:
    case(name, getattr(torch, name), torch.rand(3, 4) * 0.8)
for name in ["ceil", "floor", "round", "trunc", "sign", "frac", "signbit", "isnan", "isfinite", "isinf"]:
    case(name, lambda x, n=name: getattr(torch, n)(x) + x)
for name in [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "atan2",
    "fmod",
    "remainder",
    "hypot",
    "logaddexp",
    "copysign",
]:
    case(name, lambda x, n=name: getattr(torch, n)(x, x.flip(0).exp() + 0.3))
for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    case(name, lambda x, n=name: x * getattr(torch, n)(x, 0.1) + x * getattr(torch, n)(x, x.flip(0)))
case("add alpha", lambda x: torch.add(x, x.t().t(), alpha=3) + 2)
case("rsub", lambda x: 1 - x)
case("pow", lambda x: x**2 + x**3 + x**0.5 + x**1.7 + 2**x, positive(3, 4))
case("pow of tensors", lambda x: x ** x.flip(0), positive(3, 4))
case("div floor", lambda x: x + torch.div(x, 0.3, rounding_mode="floor") + torch.div(x, 0.3, rounding_mode="trunc"))
case("floor_divide", lambda x: x + x.detach() // 0.7 + x % 0.7)
case("clamp", lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0.1) + x.clamp(max=0.2))
case("where", lambda x: torch.where(x > 0, x, -2 * x) + torch.where(x > 0.5, 1.0, x))
case("masked_fill", lambda x: x.masked_fill(x > 0, -1.0))
case("addcmul", lambda x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.exp()))
case("lerp", lambda x: torch.lerp(x, x.flip(0), 0.3))
case("xlogy", lambda x: torch.xlogy(x, x + 1), positive(3, 4))
case("nan_to_num", torch.nan_to_num)
case("logical", lambda x: x * ((x > 0) & (x < 1) | ~(x > -1)) + x * torch.logical_xor(x > 0, x < 1))
case("integers", lambda x: x * (torch.arange(4) // 2 + torch.arange(4) % 3) + (x.int() * 2 + x.long()).float() + x)
case("bitwise", lambda x: x + ((x * 10).int() & 3 | 4 ^ 1).float())
case("deg2rad", lambda x: torch.deg2rad(x) + torch.rad2deg(x) + torch.sinc(x))
case("full_like", lambda x: x + torch.ones_like(x) + torch.zeros_like(x) + torch.full_like(x, 2) + x.new_zeros(3, 4))

for name in [
    "relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "softsign",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "leaky_relu",
    "relu6",
    "logsigmoid",
    "hardshrink",
    "softshrink",
    "tanhshrink",
]:
    case(name, getattr(F, name), r(3, 4) * 3)
case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"))
case("glu", lambda x: F.glu(x, 1))
case("threshold", lambda x: F.threshold(x, 0.1, 5.0))
case("prelu", lambda x: F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])))
case("rrelu", F.rrelu)
case("softmax", lambda x: F.softmax(x, 0) + F.softmax(x, -1))
case("log_softmax", lambda x: F.log_softmax(x, 0) + F.log_softmax(x, 1), r(3, 4, 5))

case("sum", lambda x: x.sum() + x.sum(0) + x.sum(1, keepdim=True))
case("mean", lambda x: x.mean() + x.mean(0) + x.mean((0, 1)))
case("prod", lambda x: x.prod() + x.prod(1, keepdim=True))
case("max", lambda x: x.max() + x.max(1, keepdim=True)[0] + x.amax(0) + x.max(1)[1][:, None])
case("min", lambda x: x.min() + x.min(0)[0] + x.amin(1, keepdim=True))
case("argmax", lambda x: x + x.argmax() + x.argmin(1, keepdim=True) + x.argmax(0))
case("var", lambda x: x.var() + x.var(0) + x.std(1, keepdim=True) + x.var(0, unbiased=False))
case("std_mean", lambda x: sum(torch.std_mean(x, 1, keepdim=True)) + sum(torch.var_mean(x, 0)))
case("norm", lambda x: x.norm() + x.norm(1, dim=0) + x.norm(3, dim=1, keepdim=True) + x.norm(float("inf")))
case(
    "norm of zeros", lambda x: x.norm() + x.norm(3, dim=1) + F.normalize(x).sum() + x.std(0).sum(), torch.zeros(3, 4)
)
case("distances of zeros", lambda x: torch.cdist(x, x) + F.cosine_similarity(x, x, 1), torch.zeros(3, 4))
case("logsumexp", lambda x: torch.logsumexp(x, 1, keepdim=True) + torch.logsumexp(x, (0, 1)))
case("cumsum", lambda x: x.cumsum(0) + x.cumsum(1))
case("cumprod", lambda x: x.cumprod(1))
case("topk", lambda x: x.topk(2)[0] + x.topk(2, largest=False)[0])
case("sort", lambda x: x.sort(1)[0] + x.sort(0, descending=True)[0] + x.argsort(1))
case("median", lambda x: x.median() + x.median(1)[0])
case("any", lambda x: x * (x > 0).any() + x * (x > 0).all(1, keepdim=True) + x * torch.count_nonzero(x > 0))
case("nansum", lambda x: x.nansum() + x)
case("aminmax", lambda x: x * sum(torch.aminmax(x)))
case("bucketize", lambda x: x + torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])))

case("matmul", lambda x: (x @ x.t(), x[0] @ x[1], x @ x[0], x[:, 0] @ x))
case("bmm", lambda x: torch.bmm(x, x.transpose(1, 2)) + torch.baddbmm(x @ x.mT, x, x.mT, alpha=0.5), r(2, 3, 4))
case("matmul 4-D", lambda x: x @ x.transpose(-1, -2), r(2, 2, 3, 4))
case("addmm", lambda x: torch.addmm(x @ x.t(), x, x.t(), beta=0.5, alpha=2))
case("einsum", lambda x: torch.einsum("bij,bkj->bik", x, x), r(2, 3, 4))
case("tensordot", lambda x: torch.tensordot(x, x, dims=([1], [1])))
case("outer", lambda x: torch.outer(x[0], x[1]))
case("linear", lambda x: F.linear(x, x, x[:, 0]), r(4, 4))
case("bilinear", lambda x: F.bilinear(x, x, torch.ones(2, 4, 4) * 0.3, torch.ones(2)))
case("cdist", lambda x: torch.cdist(x, x + 1))
case("cross", lambda x: torch.linalg.cross(x, x.flip(1) + 1), r(4, 3))
case("cosine_similarity", lambda x: F.cosine_similarity(x, x.flip(0)))
case("pairwise_distance", lambda x: F.pairwise_distance(x, x.flip(0)))
WEIGHTS = {rank: torch.randn(4, 2, *[3] * rank) * 0.3 for rank in (1, 2, 3)}
for rank in (1, 2, 3):
    conv, transposed = getattr(F, f"conv{rank}d"), getattr(F, f"conv_transpose{rank}d")
    shape = (2, 2, *(7, 6, 5)[:rank])
    case(
        f"conv{rank}d",
        lambda x, f=conv, w=WEIGHTS[rank]: (
            f(x, w, torch.ones(4)),
            f(x, w, stride=2, padding=1),
            f(x, w, padding=2, dilation=2),
        ),
        r(*shape),
    )
    case(
        f"conv_transpose{rank}d",
        lambda x, f=transposed, w=WEIGHTS[rank]: f(x, w.transpose(0, 1), stride=2, padding=1, output_padding=1),
        r(*shape),
    )
    case(
        f"max_pool{rank}d",
        lambda x, n=rank: (
            getattr(F, f"max_pool{n}d")(x, 2),
            getattr(F, f"max_pool{n}d")(x, 3, 2, 1, ceil_mode=True),
        ),
        r(*shape),
    )
    case(f"avg_pool{rank}d", lambda x, n=rank: getattr(F, f"avg_pool{n}d")(x, 3, 2, 1), r(*shape))
    case(
        f"adaptive_avg_pool{rank}d",
        lambda x, n=rank: getattr(F, f"adaptive_avg_pool{n}d")(x, 2),
        r(2, 2, *[4] * rank),
    )
    case(f"global pool {rank}d", lambda x, n=rank: getattr(F, f"adaptive_avg_pool{n}d")(x, 1), r(*shape))
case("conv groups", lambda x: F.conv2d(x, torch.ones(4, 1, 3, 3) * 0.2, groups=2), r(2, 2, 6, 6))
case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 2), r(2, 2, 4, 4))
for mode in ("nearest", "bilinear", "bicubic"):
    case(f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), r(2, 2, 3, 4))
case(
    "interpolate aligned", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True), r(1, 2, 3, 4)
)
case("interpolate linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), r(1, 2, 4))
case("interpolate trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), r(1, 1, 2, 2, 2))

case("layer_norm", lambda x: F.layer_norm(x, (4,), SCALE, SHIFT) + F.layer_norm(x, (3, 4)), r(2, 3, 4))
case("group_norm", lambda x: F.group_norm(x, 2, SCALE, SHIFT), r(2, 4, 3, 3))
case("instance_norm", F.instance_norm, r(2, 4, 3, 3))
case("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), r(4, 3, 2, 2))
case("batch_norm 1d", lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), r(5, 4))
case("rms_norm", lambda x: F.rms_norm(x, (4,), SCALE))
case("reshaped convolution", lambda x: F.instance_norm(F.conv2d(x, torch.ones(4, 2, 1, 1))), r(3, 2, 3, 4))
case("normalize", lambda x: F.normalize(x, dim=1))
case("local_response_norm", lambda x: F.local_response_norm(x, 2), r(2, 4, 3, 3))

case("views", lambda x: x.view(4, 3).t() + x.reshape(2, 6).reshape(3, 4) + x.unsqueeze(0).squeeze(0))
case("permute", lambda x: x.permute(2, 0, 1) + x.transpose(0, 2).transpose(1, 2) + x.movedim(2, 0), r(2, 3, 4))
case("expand", lambda x: x[:, None].expand(-1, 2, -1) + x.broadcast_to(2, 3, 4).transpose(0, 1))
case("slices", lambda x: x[1:] + x[:-1] + x[1] + x[:2, :][0] + x[..., ::2].sum() + x.narrow(1, 0, 2).sum())
case(
    "split", lambda x: x.split(2, 1)[0] + x.chunk(2, 1)[1] + sum(x.unbind(0)).view(2, 2).sum() + x.split([1, 3], 1)[0]
)
case("cat", lambda x: torch.cat([x, x * 2], 1) + torch.stack([x, x], 1).flatten(1))
case("repeat", lambda x: x.repeat(2, 1) + x.repeat_interleave(2, 0) + x.tile(2, 1))
case("flip roll", lambda x: x.flip(0, 1) + x.roll(1, 0) + x.roll(3))
case("pad", lambda x: F.pad(x, (1, 2, 0, 1)) + F.pad(x, (1, 2, 0, 1), value=3.0) + F.pad(x, (-1, 4, 1, 0)))
case("pad modes", lambda x: F.pad(x, (1, 1), "reflect") + F.pad(x, (1, 1), "replicate"), r(2, 3, 4))
case("tril", lambda x: x.tril() + x.triu(1))
case("unfold", lambda x: x.unfold(1, 2, 1))
case("diagonal", lambda x: x.diagonal() + x.diagonal(1) * 2)
case("pixel_shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 2), r(1, 4, 2, 2))
case("meshgrid", lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij")[0])
case("as_strided", lambda x: x.as_strided((2, 2), (4, 1), 1))
case("ellipsis", lambda x: x[..., None].squeeze(-1)[None, :, 1:3])

case(
    "gather", lambda x: x.gather(1, torch.tensor([[0, 1], [2, 2], [3, 0]])) + x.take_along_dim(x.argsort(1), 1)[:, :2]
)
case(
    "index",
    lambda x: (x[torch.tensor(INDEX)], x[:, torch.tensor(INDEX)], x[torch.tensor([0, 1]), torch.tensor([1, -1])]),
)
case("index apart", lambda x: x[torch.tensor([0, 1]), :, torch.tensor([1, 0])] * 2, r(3, 4, 5))
case("index mask", lambda x: x[torch.tensor([True, False, True])] * 2)
case("index_select", lambda x: x.index_select(1, torch.tensor([0, 0, 3])))
case("take", lambda x: x.take(torch.tensor([0, 5, 5])))
case(
    "scatter",
    lambda x: torch.zeros(3, 4).scatter(1, torch.tensor(INDEX), x[:2, :2]) + x.scatter(0, torch.tensor(INDEX), 2.0),
)
case("scatter_add", lambda x: torch.zeros(3, 4).scatter_add(0, torch.tensor([[0, 1, 2, 0], [2, 2, 2, 2]]), x[:2]))
case("scatter_reduce", lambda x: x.scatter_reduce(0, torch.tensor([[0, 1, 2, 0]]), x[1:2] * 2, "sum"))
case(
    "index_add",
    lambda x: torch.zeros(3, 4).index_add(0, torch.tensor([0, 2, 0]), x) + x.index_copy(0, torch.tensor([1]), x[:1]),
)
case("index_fill", lambda x: x.index_fill(1, torch.tensor([0, 2]), 1.0))
case("embedding", lambda x: F.embedding(torch.tensor(INDEX), x, padding_idx=1))
case("embedding_bag", lambda x: F.embedding_bag(torch.tensor([0, 1, 2, 2]), x, torch.tensor([0, 2]), mode="mean"))
case("one_hot", lambda x: F.one_hot(torch.tensor(INDEX), 3).float() @ x)
case("one_hot of data", lambda x: F.one_hot(x.argmax(1), 4) * x)

case("mse_loss", lambda x: F.mse_loss(x, x.flip(0)) + F.mse_loss(x, x * 0, reduction="sum"))
case("l1_loss", lambda x: F.l1_loss(x, x.flip(0)))
case("smooth_l1_loss", lambda x: F.smooth_l1_loss(x, x.flip(0), beta=0.5) + F.huber_loss(x, x.flip(1), delta=0.7))
case(
    "cross_entropy",
    lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1])) + F.cross_entropy(x, torch.tensor([0, -100, 1])),
)
case("cross_entropy smoothed", lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1]), label_smoothing=0.1))
case(
    "cross_entropy weights",
    lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1]), weight=torch.tensor([1.0, 2, 3, 4])),
)
case("cross_entropy probabilities", lambda x: F.cross_entropy(x, x.detach().softmax(1)))
case("cross_entropy 2d", lambda x: F.cross_entropy(x, TARGETS), r(2, 3, 4, 4))
case("nll_loss", lambda x: F.nll_loss(x.log_softmax(1), torch.tensor([0, 3, 1]), reduction="none"))
case(
    "bce",
    lambda x: F.binary_cross_entropy(x.sigmoid(), SHARES) + F.binary_cross_entropy_with_logits(x, torch.ones(3, 4)),
)
case(
    "bce weights",
    lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(3, 4) * 0.3, pos_weight=torch.tensor([1.0, 2, 3, 4])),
)
case("kl_div", lambda x: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"))
case("poisson_nll", lambda x: F.poisson_nll_loss(x, torch.ones(3, 4) * 2))
case("margins", lambda x: F.soft_margin_loss(x, x.sign().detach()) + F.hinge_embedding_loss(x, x.sign().detach()))
case(
    "triplet",
    lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1)) + F.cosine_embedding_loss(x, x.flip(0), torch.ones(3)),
)
case(
    "multilabel",
    lambda x: (
        F.multilabel_soft_margin_loss(x, torch.ones(3, 4)) + F.margin_ranking_loss(x, x.flip(0), torch.ones(3, 4))
    ),
)
case(
    "ctc_loss",
    lambda x: F.ctc_loss(
        x.log_softmax(2), torch.tensor([[1, 2], [2, 3]]), torch.tensor([6, 6]), torch.tensor([2, 2])
    ),
    r(6, 2, 4),
)
case(
    "attention",
    lambda x: F.scaled_dot_product_attention(x, x, x) + F.scaled_dot_product_attention(x, x, x, is_causal=True),
    r(2, 2, 3, 4),
)


def changed(x: Any) -> Any:
    y = x * 1
    y[0] += 1
    y[1:, 2] *= 3
    y[torch.tensor([0, 2]), 1] = 5.0
    y[y > 1] = 0.5
    z = torch.zeros(3, 4)
    z[:2] = y[:2]
    z.add_(y).mul_(2).clamp_(max=3)
    return z + y


case("in place", changed)
case("dropout off", lambda x: F.dropout(x, 0.5, training=False) * 2)


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], x: Any) -> None:
        super().__init__()
        self.function, self.x = function, torch.nn.Parameter(x.clone())

    def forward(self, unit: Any) -> Any:
        torch.manual_seed(3)
        out = self.function(self.x * unit)
        outs = out if isinstance(out, tuple) else (out,)
        loss = sum((part.float() * torch.linspace(0.5, 1.5, part.numel()).view(part.shape)).sum() for part in outs)
        return *outs, poptorch.identity_loss(loss, "sum")


@pytest.mark.parametrize("name", CASES)
def test_op_and_gradient_equal_pytorch(name: str) -> None:
    function, x = CASES[name]
    module = Module(function, x)
    unit = torch.ones(1)
    expected = module(unit)
    expected[-1].backward()
    gradient = module.x.grad.clone()
    before = module.x.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), lr=1.0))
        results = model(unit)
    for mine, other in zip(results, expected, strict=True):
        torch.testing.assert_close(mine.float(), other.detach().float(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(before - module.x.detach(), gradient, rtol=1e-4, atol=3e-5)


def test_table_has_the_number_of_ops_that_is_promised() -> None:
    assert len(RULES) >= 150
