"""Elementary ops: the ops with which PopART's patterns represent each op of a step.

    MatMul of matrices      Reshape to rank 3, MatMul, Reshape
    MatMulT, Gemm           the same, with Transpose, Scale and Add as needed
    Conv with a bias        Conv, AddBias
    ConvDataGrad            ConvFlipWeights, Conv
    Split                   a Slice for each output
    Sum of two              Add
    updates of weights      Accumulate, the updater of the optimiser, and its VarUpdate

An op without an entry keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod

from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL, ACCL1, ACCL2, ACCL3, STEP, UPDATED
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp

_Form = Callable[[IrGraph, IrOp], list[IrOp]]

_RENAMED = {
    "BatchNormTrain": "BatchNormalization",
    "BatchNormShared": "BatchNormalization",
    "BatchNormSharedGrad": "BatchNormGrad",
    "BatchNormInfer": "BatchNormalization",
    "ConvWeightGrad": "ConvWeightsGrad",
    "CountLargeGradients": "Histogram",
    "ChangeLossScale": "LossScaleUpdate",
    "ChangeLossScaleAtTimes": "LossScaleUpdate",
    "CtcLossGrad": "CtcGrad",
    "CumSumAlong": "CumSum",
    "DropoutGrad": "Dropout",
    "DropoutWithKey": "Dropout",
    "GraphcoreGeluErfGrad": "GeluErfGrad",
    "GraphcoreGeluGrad": "GeluGrad",
    "GraphcoreSwishGrad": "SwishGrad",
    "GroupNormGrad": "GroupNormalizationGrad",
    "PadGrad": "Slice",
    "PrintedGradient": "PrintTensor",
    "RandomNormalLike": "RandomNormal",
    "RandomNormals": "RandomNormal",
    "RandomUniformLike": "RandomUniform",
    "RandomUniforms": "RandomUniform",
    "ReshapeTo": "Reshape",
    "Reversed": "Reverse",
    "SoftmaxNllGrad": "SoftmaxGradDirect",
    "SpreadTo": "ReduceSumGrad",
    "TakeIndexed": "Gather",
    "While": "Loop",
    "WhileGrad": "LoopGrad",
}
_CONV_MODES = ("input_channels", "reducing_dim", "output_channels")


def elementary(graph: IrGraph, op: IrOp) -> list[IrOp]:
    """Return the ops that PopART has instead of ``op``."""
    form = _FORMS.get(op.type)
    if form is not None:
        return form(graph, op)
    op.type = _RENAMED.get(op.type, op.type)
    return [op]


def _reduced(graph: IrGraph, op: IrOp) -> list[IrOp]:
    """A sum to the shape of an operand that was broadcast."""
    (source, *_), (out,) = op.inputs, op.outputs
    before, after = graph.shape(source), graph.shape(out)
    if before == after:
        return [op.like("Identity", [source], [out])]
    lead = len(before) - len(after)
    axes = [*range(lead), *(lead + i for i, size in enumerate(after) if size != before[lead + i])]
    return [op.like("ReduceSum", [source], [out], axes=axes, keepdims=int(lead == 0))]


def _reshaped(graph: IrGraph, op: IrOp, id: str, shape: Sequence[int], ops: list[IrOp]) -> str:
    if graph.shape(id) == tuple(shape):
        return id
    reshaped = graph.new(f"{id}/reshaped", graph.tensors[id], shape)
    ops.append(op.like("Reshape", [id], [reshaped], shape=list(shape)))
    return reshaped


def _transposed(graph: IrGraph, op: IrOp, id: str, ops: list[IrOp]) -> str:
    shape = graph.shape(id)
    transposed = graph.new(f"{id}/transposed", graph.tensors[id], (*shape[:-2], shape[-1], shape[-2]))
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    ops += _transpose(graph, op.like("Transpose", [id], [transposed], perm=perm))
    return transposed


def _product(graph: IrGraph, op: IrOp, a: str, b: str, out: str, ops: list[IrOp], mode: str, factor: int) -> None:
    """Append the product of ``a`` and ``b``, both brought to rank 3."""
    shapes = graph.shape(a), graph.shape(b)
    left = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    right = (*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1]
    a3 = _reshaped(graph, op, a, (prod(left[:-2]), *left[-2:]), ops)
    b3 = _reshaped(graph, op, b, (prod(right[:-2]), *right[-2:]), ops)
    batch = max(prod(left[:-2]), prod(right[:-2]))
    shape = (batch, left[-2], right[-1])
    target = out if graph.shape(out) == shape else graph.new(f"{out}/product", graph.tensors[out], shape)
    if factor > 1:
        _serial_product(graph, op, a3, b3, target, ops, mode, factor)
    else:
        ops.append(op.like("MatMul", [a3, b3], [target], **op.attributes))
    if target != out:
        ops.append(op.like("Reshape", [target], [out], shape=list(graph.shape(out))))


def _serial_product(
    graph: IrGraph, op: IrOp, a: str, b: str, out: str, ops: list[IrOp], mode: str, factor: int
) -> None:
    """Append ``factor`` products of slices: joined, or added where the slices divide the summed axis."""
    cut = {"input_channels": ((a, 1),), "output_channels": ((b, 2),), "reducing_dim": ((a, 2), (b, 1))}[mode]
    parts = []
    for index in range(factor):
        operands = {a: a, b: b}
        for id, axis in cut:
            shape, size = graph.shape(id), graph.shape(id)[axis] // factor
            piece = graph.new(f"{id}/slice", graph.tensors[id], (*shape[:axis], size, *shape[axis + 1 :]))
            bounds = {"starts": [index * size], "ends": [(index + 1) * size], "axes": [axis]}
            ops.append(op.like("Slice", [id], [piece], **bounds))
            operands[id] = piece
        shape = (graph.shape(out)[0], graph.shape(operands[a])[1], graph.shape(operands[b])[2])
        part = graph.new(f"{out}/part", graph.tensors[out], shape)
        ops.append(op.like("MatMul", [operands[a], operands[b]], [part], **op.attributes))
        parts.append(part)
    if mode != "reducing_dim":
        ops.append(op.like("Concat", parts, [out], axis=1 if mode == "input_channels" else 2))
        return
    total = parts[0]
    for index, part in enumerate(parts[1:], 2):
        partial_sum = out if index == factor else graph.new(f"{out}/sum", graph.tensors[out])
        ops.append(op.like("Add", [total, part], [partial_sum]))
        total = partial_sum


#: How the product that computes a gradient is divided, by the operand whose gradient it is.
_GRADIENT_MODES = {
    "input_channels": ("input_channels", "reducing_dim"),
    "output_channels": ("reducing_dim", "output_channels"),
    "reducing_dim": ("output_channels", "input_channels"),
}


def _serialised(op: IrOp) -> tuple[str, int]:
    serialisation = op.attributes.get("__serialize_matmul")
    if not serialisation or serialisation[0] not in _CONV_MODES:
        return "none", 1
    return str(serialisation[0]), int(serialisation[1])


def _matmul(graph: IrGraph, op: IrOp) -> list[IrOp]:
    ops: list[IrOp] = []
    a, b = op.inputs[:2]
    mode, factor = _serialised(op)
    sides = (op.attributes.pop("transA", 0), op.attributes.pop("transB", 0))
    if any(sides) and mode != "none":
        mode = _GRADIENT_MODES[mode][0 if sides[1] else 1]
    op.attributes = {key: value for key, value in op.attributes.items() if key != "__serialize_matmul"}
    a = _transposed(graph, op, a, ops) if sides[0] else a
    b = _transposed(graph, op, b, ops) if sides[1] else b
    _product(graph, op, a, b, op.outputs[0], ops, mode, factor)
    return ops


def _gemm(graph: IrGraph, op: IrOp) -> list[IrOp]:
    attributes, ops, out = op.attributes, list[IrOp](), op.outputs[0]
    op.attributes = {key: value for key, value in attributes.items() if key.startswith("__")}
    a, b = op.inputs[:2]
    a = _transposed(graph, op, a, ops) if attributes.get("transA") else a
    b = _transposed(graph, op, b, ops) if attributes.get("transB") else b
    alpha, beta = (float(attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    bias = len(op.inputs) > 2 and bool(op.inputs[2])
    steps = 1 + (alpha != 1.0) + bias
    names = [out if step == steps - 1 else graph.new(f"{out}/gemm", graph.tensors[out]) for step in range(steps)]
    _product(graph, op, a, b, names[0], ops, "none", 1)
    if alpha != 1.0:
        ops.append(op.like("Scale", [names[0]], [names[1]], scale=alpha))
    if bias:
        c = op.inputs[2]
        if beta != 1.0:
            c = graph.new(f"{c}/scaled", graph.tensors[c])
            ops.append(op.like("Scale", [op.inputs[2]], [c], scale=beta))
        ops.append(op.like("Add", [names[-2], c], [out]))
    return ops


def _conv(graph: IrGraph, op: IrOp) -> list[IrOp]:
    if len(op.inputs) < 3 or not op.inputs[2]:
        return [op]
    out = op.outputs[0]
    bare = graph.new(f"{out}/conv", graph.tensors[out])
    return [
        op.like("Conv", op.inputs[:2], [bare], **op.attributes),
        op.like("AddBias", [bare, op.inputs[2]], [out]),
    ]


def _conv_data_gradient(graph: IrGraph, op: IrOp) -> list[IrOp]:
    gradient, weights = op.inputs[:2]
    flipped = graph.new(f"{weights}/flipped", graph.tensors[weights])
    return [
        op.like("ConvFlipWeights", [weights], [flipped]),
        op.like("Conv", [gradient, flipped], op.outputs, **op.attributes),
    ]


def _split(graph: IrGraph, op: IrOp) -> list[IrOp]:
    source, axis = op.inputs[0], int(op.attributes.get("axis", 0)) % len(graph.shape(op.inputs[0]))
    ends = list(accumulate(graph.shape(id)[axis] for id in op.outputs))
    return [
        op.like("Slice", [source], [id], starts=[end - graph.shape(id)[axis]], ends=[end], axes=[axis])
        for id, end in zip(op.outputs, ends, strict=True)
    ]


def _transpose(graph: IrGraph, op: IrOp) -> list[IrOp]:
    """A transpose that keeps the order of elements is a Reshape; one that changes nothing is removed."""
    shape = graph.shape(op.inputs[0])
    perm = [int(axis) for axis in op.attributes.get("perm") or reversed(range(len(shape)))]
    moved = [axis for axis in perm if shape[axis] != 1]
    if perm == sorted(perm):
        return [op.like("Identity", op.inputs, op.outputs)]
    if moved == sorted(moved):
        return [op.like("Reshape", op.inputs, op.outputs, shape=list(graph.shape(op.outputs[0])))]
    return [op.like("Transpose", op.inputs, op.outputs, **{**op.attributes, "perm": perm})]


def _sum(graph: IrGraph, op: IrOp) -> list[IrOp]:
    op.type = {1: "Identity", 2: "Add"}.get(len(op.inputs), op.type)
    return [op]


def _identity_loss(graph: IrGraph, op: IrOp) -> list[IrOp]:
    if op.attributes.get("reduction") == "NoReduction":
        return [op.like("Identity", op.inputs, op.outputs)]
    return [op]


# Updates of weights


def _accumulate(op: IrOp, variable: str, value: str, kind: str = "Add") -> IrOp:
    return op.like("Accumulate", [variable, value], [UPDATED + variable], type=kind)


def _sgd_combined(graph: IrGraph, op: IrOp) -> list[IrOp]:
    weight, state, gradient = op.inputs[:3]
    ops = [] if gradient.startswith("Combined") else [_accumulate(op, state, gradient, "DampenedAdd")]
    return [
        *ops,
        op.like("SGD1VarUpdate", [weight, state], op.outputs[:1]),
        op.like("SGD1AcclUpdate", [state, op.outputs[0]], [UPDATED + ACCL + weight]),
    ]


def _sgd_separate(graph: IrGraph, op: IrOp) -> list[IrOp]:
    weight, state, gradient = op.inputs[:3]
    return [
        op.like("SGD2PartialAcclUpdate", [state, weight], [UPDATED + ACCL1 + weight]),
        _accumulate(op, state, gradient, "DampenedAdd"),
        op.like("SGD2VarUpdate", [weight, state], op.outputs[:1]),
        *_zeroed(op, gradient),
    ]


def _zeroed(op: IrOp, gradient: str) -> list[IrOp]:
    """The reset of an accumulator, if the gradient is one."""
    return [op.like("AccumulatorZero", [gradient], [UPDATED + gradient])] if gradient.startswith("Accum___") else []


def _adam(graph: IrGraph, op: IrOp) -> list[IrOp]:
    weight, first, second, *_ = op.inputs
    gradient = next(id for id in op.inputs if id != weight and not id.startswith((ACCL1, ACCL2, STEP)))
    updater = graph.new(f"Updater___{weight}", graph.tensors[weight])
    ops = [
        _accumulate(op, first, gradient, "MovingAverage"),
        _accumulate(op, second, gradient, "Infinity" if op.attributes.get("maximum") else "MovingAverageSquare"),
        op.like("AdamUpdater", [weight, first, second, STEP + weight], [updater]),
    ]
    norms = []
    if op.attributes.get("norms"):
        for prefix, id in (("LambR1Sq___", weight), ("LambR2Sq___", updater)):
            norms.append(graph.new(prefix + weight, graph.tensors[weight], ()))
            ops.append(op.like("LambSquare", [id], [norms[-1]]))
    ops.append(op.like("AdamVarUpdate", [weight, updater, *norms], op.outputs[:1]))
    return [*ops, *_zeroed(op, gradient)]


def _adaptive(graph: IrGraph, op: IrOp) -> list[IrOp]:
    weight = op.inputs[0]
    states = [id for id in op.inputs if id.startswith((ACCL1, ACCL2, ACCL3))]
    gradient = next(id for id in op.inputs if id != weight and id not in states)
    updater = graph.new(f"Updater___{weight}", graph.tensors[weight])
    kind = "AdaDeltaUpdater" if op.attributes.get("form") == 3 else "RMSPropUpdater"
    ops = [_accumulate(op, states[0], gradient, "Sum" if not op.attributes.get("form") else "MovingAverageSquare")]
    if op.attributes.get("form") == 2:
        ops.append(_accumulate(op, states[1], gradient, "MovingAverage"))
    ops.append(op.like(kind, [gradient, *states[:2]], [updater]))
    if op.attributes.get("form") == 3:
        ops.append(_accumulate(op, states[1], updater, "MovingAverageSquare"))
    moved = updater
    if op.attributes.get("third"):
        moved = states[-1]
        ops.append(_accumulate(op, moved, updater, "MovingAverage"))
    ops.append(op.like("ScaledVarUpdate", [weight, moved], op.outputs[:1]))
    return [*ops, *_zeroed(op, gradient)]


# Clipping of gradients


def _norm(graph: IrGraph, op: IrOp) -> list[IrOp]:
    rank = len(graph.shape(op.inputs[0]))
    return [op.like("ReduceSumSquare", op.inputs[:1], op.outputs, axes=list(range(rank)), keepdims=0)]


def _clip_factor(graph: IrGraph, op: IrOp) -> list[IrOp]:
    *norms, scale = op.inputs
    first = graph.tensors[norms[0]]
    ops, total = [], norms[0]
    if len(norms) > 1:
        total = graph.new(f"{op.outputs[0]}/sum", first)
        ops.append(op.like("Sum" if len(norms) > 2 else "Add", norms, [total]))
    root, most = graph.new(f"{op.outputs[0]}/norm", first), graph.new(f"{op.outputs[0]}/max", first)
    ops.append(op.like("Sqrt", [total], [root]))
    ops.append(op.like("Max", [root, scale], [most]))
    ops.append(op.like("Div", [scale, most], op.outputs))
    return ops


def _clipped(graph: IrGraph, op: IrOp) -> list[IrOp]:
    return [op.like("Mul", op.inputs, op.outputs)]


# Recurrent layers


def _recurrence(graph: IrGraph, op: IrOp) -> list[IrOp]:
    cell = str(op.attributes.get("cell", "LSTM")).upper()
    op.type = cell + ("Grad" if op.type.endswith("Grad") else "")
    return [op]


_FORMS: dict[str, _Form] = {
    "AdamUpdate": _adam,
    "AdaptiveUpdate": _adaptive,
    "ClipFactor": _clip_factor,
    "ClipGradient": _clipped,
    "Conv": _conv,
    "ConvDataGrad": _conv_data_gradient,
    "Gemm": _gemm,
    "GradientNorm": _norm,
    "IdentityLoss": _identity_loss,
    "MatMul": _matmul,
    "MatMulT": _matmul,
    "Recurrence": _recurrence,
    "RecurrenceGrad": _recurrence,
    "SgdCombined": _sgd_combined,
    "SgdPlain": lambda graph, op: [op.like("SGD0VarUpdate", op.inputs[:2], op.outputs[:1])],
    "SgdSeparate": _sgd_separate,
    "Split": _split,
    "Sum": _sum,
    "SumTo": _reduced,
    "Transpose": _transpose,
    "UndoLossScale": _clipped,
}
