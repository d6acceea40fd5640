"""Cases of the ops of aiGraphcore that networks rarely use."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, Mean, NoReduction, Sum, case

__all__ = ["GRAPHCORE"]

TARGETS = np.array([[1, 1, 2], [3, 0, 0], [2, 3, 1]], np.uint32)
TIMES, SIZES = np.array([6, 4, 5], np.uint32), np.array([3, 1, 2], np.uint32)


def ctc(reduction: Any, *, blank: int = 0) -> Case:
    targets = (TARGETS + blank) % 4 if blank else TARGETS

    def build(builder: Any, ids: list[str]) -> str:
        logs = builder.aiOnnx.logsoftmax(ids, 2)
        rest = [builder.aiOnnx.constant(value) for value in (targets, TIMES, SIZES)]
        return str(builder.aiGraphcore.ctcloss([logs, *rest], reduction, blank))

    def torch_ctc(torch: Any, x: Any) -> Any:
        rest = (torch.tensor(value.astype(np.int64)) for value in (targets, TIMES, SIZES))
        how = {Sum: "sum", Mean: "mean", NoReduction: "none"}[reduction]
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), *rest, blank=blank, reduction=how)

    return case("Ctc", f"{how_named(reduction)} {blank}", [(6, 3, 4)], build, torch_ctc, onnx=False, compound=True)


def how_named(reduction: Any) -> str:
    return str(reduction.name)


def multi_conv(builder: Any, ids: list[str]) -> str:
    outputs = builder.aiGraphcore.multiconv(
        [ids[:2], ids[2:]],
        dilations=[[1, 1], [2, 1]],
        inDilations=[[1, 1], [2, 3]],
        pads=[[1, 1, 1, 1], [0, 0, 0, 0]],
        outPads=[[0, 0, 0, 0], [1, 0, 0, 2]],
        strides=[[2, 2], [1, 1]],
    )
    flat = [builder.reshape_const(builder.aiOnnx, [id], [-1]) for id in outputs]
    return str(builder.aiOnnx.concat(flat, 0))


def torch_multi_conv(torch: Any, x: Any, w: Any, x2: Any, w2: Any, b2: Any) -> Any:
    function = torch.nn.functional
    first = function.conv2d(x, w, stride=2, padding=1)
    spread = torch.zeros(2, 4, 5, 7).index_put(
        (torch.arange(2)[:, None, None, None], torch.arange(4)[:, None, None],
         2 * torch.arange(3)[:, None], 3 * torch.arange(3)), x2
    )  # fmt: skip
    second = function.pad(function.conv2d(spread, w2, b2, dilation=(2, 1), groups=2), (0, 2, 1, 0))
    return torch.cat([first.reshape(-1), second.reshape(-1)])


def lstm(name: str, *, output: int = 0, full: int = 1) -> Case:
    """[T 3, N 2, I 4] with 5 hidden units."""

    def build(builder: Any, ids: list[str]) -> str:
        return str(builder.aiGraphcore.lstm(ids, full)[output])

    def torch_lstm(torch: Any, x: Any, w: Any, b: Any, start: Any) -> Any:
        (h, c), states = start, []
        for t in range(len(x)):
            f, i, new, o = (torch.cat([x[t], h], -1) @ w[gate] + b[gate] for gate in range(4))
            c = f.sigmoid() * c + i.sigmoid() * new.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        return c if output else torch.stack(states) if full else h

    shapes = [(3, 2, 4), (4, 9, 5), (4, 5), (2, 2, 5)]
    return case("LSTM", f"graphcore {name}", shapes, build, torch_lstm, onnx=False, compound=True, span=0.5)


COUNTS, FIRST, TO = ([2, 1, 3], [0, 4, 1], [1, 0, 3])


def sequence_slice(clear: bool) -> Case:
    def build(builder: Any, ids: list[str]) -> str:
        runs = [builder.aiOnnx.constant(np.array(value, np.uint32)) for value in (COUNTS, FIRST, TO)]
        return str(builder.aiGraphcore.sequenceslice([*ids, *runs], clear))

    def torch_slice(torch: Any, source: Any, start: Any) -> Any:
        rows = list(0 * start if clear else start)
        for count, first, to in zip(COUNTS, FIRST, TO, strict=True):
            rows[to : to + count] = list(source[first : first + count])
        return torch.stack(rows)

    return case("SequenceSlice", f"clear {clear}", [(5, 3), (7, 3)], build, torch_slice, onnx=False)


def normalize_image(builder: Any, ids: list[str]) -> str:
    return str(builder.aiGraphcore.normalize_image(ids, 0.5))


def torch_normalize_image(torch: Any, x: Any, offsets: Any, scales: Any) -> Any:
    return torch.nn.functional.pad((0.5 * x - offsets) * scales, (0, 1))


def depth_to_space(builder: Any, ids: list[str]) -> str:
    return str(builder.aiGraphcore.depthtospace(ids, 2, "CRD"))


GRAPHCORE = [
    ctc(Mean),
    ctc(Sum),
    ctc(NoReduction, blank=3),
    case(
        "MultiConv",
        "",
        [(2, 3, 5, 4), (4, 3, 3, 2), (2, 4, 3, 3), (6, 2, 2, 3), (6,)],
        multi_conv,
        torch_multi_conv,
        onnx=False,
        compound=True,
    ),
    lstm("all"),
    lstm("last", full=0),
    lstm("cell", output=1),
    sequence_slice(False),
    sequence_slice(True),
    case(
        "NormalizeImage",
        "",
        [(2, 4, 3), (3,), (3,)],
        normalize_image,
        torch_normalize_image,
        onnx=False,
        compound=True,
    ),
    case(
        "DepthToSpace",
        "graphcore",
        [(2, 8, 2, 3)],
        depth_to_space,
        lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
        onnx=False,
    ),
    case(
        "TensorRemap",
        "",
        [(3, 5)],
        lambda builder, ids: str(builder.aiGraphcore.tensorremap(ids, 0)),
        lambda t, x: x,
        onnx=False,
    ),
    case(
        "ShapedDropout",
        "kept",
        [(3, 5)],
        lambda builder, ids: str(builder.aiGraphcore.shapeddropout(ids, [1, 5], 0.0)),
        lambda t, x: x,
        onnx=False,
    ),
]
