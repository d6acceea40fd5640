"""Cases of normalisations, class losses and recurrent networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, case, custom_op, onnx_op

__all__ = ["LAYERS"]


def group(name: str, x: Any, groups: int) -> Case:
    shapes = [x, (x[1],), (x[1],)]

    def first(builder: Any, ids: list[str]) -> str:
        return str(builder.aiGraphcore.groupnormalization(ids, groups, 1e-3)[0])

    return case(
        "GroupNormalization",
        name,
        shapes,
        first,
        lambda t, x, s, b: t.nn.functional.group_norm(x, groups, s, b, 1e-3),
        onnx=False,
        compound=True,
    )


def lrn(torch: Any, x: Any) -> Any:
    return torch.nn.functional.local_response_norm(x, 3, 0.5, 0.75, 2.0)


def class_loss(op: str, method: str, reduction: str, *, weights: bool = False, ignore: int | None = None) -> Case:
    shape = (3, 4, 2)
    labels = np.array([[0, 3], [1, 1], [2, 0]], np.int32)

    def build(builder: Any, ids: list[str]) -> str:
        more = [builder.aiOnnx.constant(np.array([1.0, 2.0, 0.5, 1.5], np.float32))] if weights else []
        kind = builder.getTensorDtypeString(ids[0])
        more = [builder.aiOnnx.cast(more, "FLOAT16")] if weights and kind == "float16" else more
        attributes = {"reduction": reduction} | ({} if ignore is None else {"ignore_index": ignore})
        return str(builder.customOp(op, 13, "ai.onnx", [*ids, *more], attributes)[0])

    def torch_loss(torch: Any, x: Any, labels: Any) -> Any:
        class_weights = torch.tensor([1.0, 2.0, 0.5, 1.5]) if weights else None
        function = getattr(torch.nn.functional, method)
        return function(
            x, labels.long(), class_weights, reduction=reduction, ignore_index=-100 if ignore is None else ignore
        )

    name = f"{reduction} {'weights' if weights else ''} {ignore}"
    return case(op, name, [shape], build, torch_loss, labels=labels, onnx=False, compound=True)


LENGTHS = np.array([3, 1], np.int32)


def recurrent(
    op: str,
    name: str,
    direction: str = "forward",
    *,
    output: int = 0,
    states: bool = False,
    lengths: bool = False,
    peepholes: bool = False,
    **more: Any,
) -> Case:
    """[T 3, N 2, I 4] with 5 hidden units."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    directions = 2 if direction == "bidirectional" else 1
    batch_first = bool(more.get("layout", 0))
    last: Any = (2, directions, 5) if batch_first else (directions, 2, 5)
    shapes: list[Any] = [
        (2, 3, 4) if batch_first else (3, 2, 4),
        (directions, gates * 5, 4),
        (directions, gates * 5, 5),
        (directions, 2 * gates * 5),
    ]
    shapes += [last] * (2 if op == "LSTM" else 1) * states + [(directions, 15)] * peepholes

    def build(builder: Any, ids: list[str]) -> str:
        sizes = builder.aiOnnx.constant(LENGTHS) if lengths else ""
        inputs = [*ids[:4], sizes, *([] if states else ["", ""] * peepholes), *ids[4:]]
        attributes = {"hidden_size": 5, "direction": direction, **more}
        return str(builder.customOp(op, 14, "ai.onnx", inputs, attributes, 3 if op == "LSTM" else 2)[output])

    def torch_run(torch: Any, x: Any, w: Any, r: Any, b: Any, *rest: Any) -> Any:
        p, start = (rest[-1], rest[:-1]) if peepholes else (None, rest)
        if batch_first:
            x, start = x.transpose(0, 1), [state.transpose(0, 1) for state in start]
        outputs = torch_recurrent(torch, op, x, w, r, b, start, direction, LENGTHS if lengths else None, p, more)[
            output
        ]
        if not batch_first:
            return outputs
        return outputs.permute(2, 0, 1, 3) if output == 0 else outputs.transpose(0, 1)

    return case(op, f"{name} {direction}", shapes, build, torch_run, onnx=False, compound=True, span=0.5)


def torch_functions(torch: Any, op: str, more: Any) -> list[Any]:
    """The functions of the gates, clipped if requested; that of the cell is not."""
    clip = more.get("clip", 1e9)
    defaults = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
    known = {
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "HardSigmoid": lambda x: (0.3 * x + 0.4).clamp(0, 1),
        "Affine": lambda x: 0.8 * x + 0.1,
        "Elu": torch.nn.functional.elu,
        "LeakyRelu": lambda x: torch.nn.functional.leaky_relu(x, 0.2),
        "ScaledTanh": lambda x: 1.5 * torch.tanh(0.7 * x),
        "Softsign": torch.nn.functional.softsign,
        "Softplus": torch.nn.functional.softplus,
    }
    chosen = [known[name] for name in more.get("activations", defaults)]
    clipped = [lambda x, f=f: f(x.clamp(-clip, clip)) for f in chosen]
    return [*clipped[:2], chosen[2]] if op == "LSTM" else clipped


def torch_recurrent(
    torch: Any, op: str, x: Any, w: Any, r: Any, b: Any, start: Any, direction: str, lengths: Any, p: Any, more: Any
) -> Any:
    """ONNX's formulas step by step."""
    ys, hs, cs, f = [], [], [], torch_functions(torch, op, more)
    for d in range(len(w)):
        wb, rb = b[d].chunk(2)
        h, c = (start[i][d] if len(start) > i else torch.zeros(x.shape[1], r.shape[2]) for i in (0, 1))
        pi, po, pf = (0, 0, 0) if p is None else p[d].chunk(3)
        backwards = d == 1 or direction == "reverse"
        states: list[Any] = [None] * len(x)
        for t in reversed(range(len(x))) if backwards else range(len(x)):
            a, u, old = x[t] @ w[d].T + wb, h @ r[d].T + rb, (h, c)
            if op == "RNN":
                h = f[0](a + u)
            elif op == "LSTM":
                i, o, forget, g = (a + u).chunk(4, -1)
                i = f[0](i + pi * c)
                forget = 1 - i if more.get("input_forget") else f[0](forget + pf * c)
                c = forget * c + i * f[1](g)
                h = f[0](o + po * c) * f[2](c)
            else:
                (az, ar, an), (uz, ur, un) = a.chunk(3, -1), u.chunk(3, -1)
                z, reset = f[0](az + uz), f[0](ar + ur)
                size = h.shape[-1]
                linear = more.get("linear_before_reset", 0)
                inner = reset * un if linear else (reset * h) @ r[d][2 * size :].T + rb[2 * size :]
                h = (1 - z) * f[1](an + inner) + z * h
            on = torch.ones(x.shape[1], 1, dtype=bool) if lengths is None else torch.tensor(t < lengths)[:, None]
            states[t] = torch.where(on, h, torch.zeros(()))
            h, c = torch.where(on, h, old[0]), torch.where(on, c, old[1])
        ys.append(torch.stack(states))
        hs.append(h)
        cs.append(c)
    return torch.stack(ys, 1), torch.stack(hs), torch.stack(cs)


def layer(name: str, x: Any, inner: Any, axis: int, *, bias: bool = True) -> Case:
    shapes = [x, inner, inner] if bias else [x, inner]

    def torch_norm(torch: Any, x: Any, s: Any, b: Any = None) -> Any:
        return torch.nn.functional.layer_norm(x, inner, s, b, 1e-3)

    build = custom_op("LayerNormalization", 17, axis=axis, epsilon=1e-3)
    return case("LayerNormalization", name, shapes, build, torch_norm, onnx=False, compound=True)


def batch(torch: Any, x: Any, s: Any, b: Any) -> Any:
    return torch.nn.functional.batch_norm(x, None, None, s, b, True, 0.1, 1e-3)


def batch_norm(outputs: int) -> Callable[[Any, list[str]], str]:
    def build(builder: Any, ids: list[str]) -> str:
        kind = builder.getTensorDtypeString(ids[0])
        mean, variance = (builder.addInitializedInputTensor(np.full(3, v, kind)) for v in (0.5, 2.0))
        return str(builder.aiOnnx.batchnormalization([*ids, mean, variance], outputs, 1e-3)[0])

    return build


N3: Any = [(4, 3, 2, 3), (3,), (3,)]
along = {"onnx": False, "compound": True}

LAYERS = [
    case(
        "BatchNormalization",
        "inference",
        N3,
        batch_norm(1),
        lambda t, x, s, b: t.nn.functional.batch_norm(
            x, t.full((3,), 0.5), t.full((3,), 2.0), s, b, False, 0.1, 1e-3
        ),
        **along,
    ),
    case("BatchNormalization", "training", N3, batch_norm(5), batch, **along),
    group("matrix", (4, 6), 1),
    group("groups", (2, 6, 3, 2), 3),
    layer("last axis", (2, 3, 5), (5,), -1),
    layer("two axes", (2, 3, 4), (3, 4), 1, bias=False),
    case(
        "InstanceNormalization",
        "",
        [(2, 3, 4, 2), (3,), (3,)],
        onnx_op("instancenormalization", 1e-3),
        lambda t, x, s, b: t.nn.functional.instance_norm(x, weight=s, bias=b, eps=1e-3),
        **along,
    ),
    case(
        "RMSNormalization",
        "",
        [(3, 5), (5,)],
        custom_op("RMSNormalization", 23, epsilon=1e-3),
        lambda t, x, s: t.nn.functional.rms_norm(x, (5,), s, 1e-3),
        **along,
    ),
    case(
        "MeanVarianceNormalization",
        "",
        [(3, 2, 2, 2)],
        onnx_op("meanvariancenormalization"),
        lambda t, x: (x - x.mean((0, 2, 3), True)) / x.std((0, 2, 3), unbiased=False, keepdim=True),
        **along,
    ),
    case(
        "LpNormalization",
        "2",
        [(3, 5)],
        onnx_op("lpnormalization", 1, 2),
        lambda t, x: t.nn.functional.normalize(x, 2.0, 1),
        **along,
    ),
    case(
        "LpNormalization",
        "1",
        [(3, 5)],
        onnx_op("lpnormalization", 0, 1),
        lambda t, x: t.nn.functional.normalize(x, 1.0, 0),
        distinct=True,
        **along,
    ),
    case("LRN", "", [(2, 5, 2, 3)], onnx_op("lrn", 3, 0.5, 0.75, 2.0), lrn, **along),
    *(class_loss("NegativeLogLikelihoodLoss", "nll_loss", how) for how in ("none", "sum", "mean")),
    class_loss("NegativeLogLikelihoodLoss", "nll_loss", "mean", weights=True, ignore=1),
    class_loss("SoftmaxCrossEntropyLoss", "cross_entropy", "mean"),
    class_loss("SoftmaxCrossEntropyLoss", "cross_entropy", "none", weights=True, ignore=0),
    recurrent("RNN", "plain"),
    recurrent("RNN", "state", "bidirectional", states=True, output=1),
    recurrent("GRU", "plain", "bidirectional", states=True),
    recurrent("GRU", "linear", "reverse", linear_before_reset=1),
    recurrent("LSTM", "plain", "bidirectional", states=True),
    recurrent("LSTM", "cell", "reverse", output=2),
    recurrent("RNN", "layout", "bidirectional", layout=1, output=1),
    recurrent("RNN", "softsign", activations=["Softsign"]),
    recurrent("RNN", "affine clip", activations=["Affine"], activation_alpha=[0.8], activation_beta=[0.1], clip=0.9),
    recurrent("GRU", "lengths", "bidirectional", lengths=True, states=True),
    recurrent(
        "GRU",
        "clip",
        clip=0.4,
        activations=["HardSigmoid", "Elu"],
        activation_alpha=[0.3, 1.0],
        activation_beta=[0.4],
    ),
    recurrent("LSTM", "lengths", "reverse", lengths=True, peepholes=True, output=1),
    recurrent("LSTM", "peepholes", "bidirectional", states=True, peepholes=True, layout=1),
    recurrent(
        "LSTM",
        "coupled",
        input_forget=1,
        peepholes=True,
        activations=["Sigmoid", "ScaledTanh", "LeakyRelu"],
        activation_alpha=[1.5, 0.2],
        activation_beta=[0.7],
        clip=0.8,
    ),
    recurrent("LSTM", "softplus", activations=["Sigmoid", "Softplus", "Tanh"]),
]
