"""Shape cases: operands of drawn shapes, with axes, indices and attributes that fit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ipu_emu.tensorflow.importer.case_forms import Case, numbers, shape_of


def some(random: Any, least: int = 1) -> Any:
    return numbers(random, shape_of(random, rank=int(random.integers(least, 5))))


def _begin_and_size(random: Any, x: Any) -> tuple[list[int], list[int]]:
    begin = [int(random.integers(0, n)) for n in x.shape]
    return begin, [int(random.integers(1, n - b + 1)) for n, b in zip(x.shape, begin, strict=True)]


def part(random: Any) -> Any:
    x = some(random)
    begin, size = _begin_and_size(random, x)
    return [x, np.array(begin, np.int32), np.array(size, np.int32)], {}


def strided(random: Any) -> Any:
    x = numbers(random, shape_of(random, 5, int(random.integers(1, 4))))
    begin, end, steps = [], [], []
    for n in x.shape:
        step = int(random.choice([-2, -1, 1, 2]))
        first, last = sorted((int(random.integers(0, n)), int(random.integers(0, n))))
        begin.append(last if step < 0 else first)
        end.append(first if step < 0 else last + 1)
        steps.append(step)
    masks = {f"{name}_mask": int(random.integers(0, 2**x.ndim)) for name in ("begin", "end")}
    masks["shrink_axis_mask"] = int(random.integers(0, 2)) << int(random.integers(0, x.ndim))
    steps = [1 if masks["shrink_axis_mask"] >> axis & 1 else step for axis, step in enumerate(steps)]
    return [x, *(np.array(bounds, np.int32) for bounds in (begin, end, steps))], masks


def strided_grad(name: str, random: Any) -> Any:
    from tensorflow import raw_ops
    from tensorflow.python.eager import context

    (x, begin, end, steps), masks = strided(random)
    with context.eager_mode():
        result = raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=steps, **masks)
    g = numbers(random, tuple(result.shape))
    return [g], lambda raw, dy: raw.StridedSliceGrad(
        shape=np.array(x.shape, np.int32), begin=begin, end=end, strides=steps, dy=dy, **masks
    )


def pads(random: Any, most: int = 2) -> Any:
    x = some(random)
    pairs = np.array([random.integers(0, min(most, n - 1 if most == 1 else most) + 1, 2) for n in x.shape], np.int32)
    return x, pairs


def mirror(random: Any) -> Any:
    x, pairs = pads(random, 1)
    return [x, pairs], {"mode": ("REFLECT", "SYMMETRIC")[int(random.integers(0, 2))]}


def mirror_grad(random: Any) -> Any:
    (x, pairs), more = mirror(random)
    shape = tuple(n + int(pair.sum()) for n, pair in zip(x.shape, pairs, strict=True))
    return [numbers(random, shape), pairs], more


def _concat_operands(random: Any) -> tuple[list[Any], int]:
    shape = list(shape_of(random, rank=int(random.integers(1, 5))))
    axis, operands = int(random.integers(0, len(shape))), []
    for _ in range(int(random.integers(2, 4))):
        shape[axis] = int(random.integers(1, 4))
        operands.append(numbers(random, tuple(shape)))
    return operands, axis


def concat(argument: str, where: str) -> Case:
    def case(name: str, random: Any) -> Any:
        operands, axis = _concat_operands(random)
        return operands, lambda raw, *v: getattr(raw, name)(**{argument: list(v), where: np.int32(axis)})

    return case


def gather(random: Any) -> Any:
    x = some(random)
    batch = 0
    axis = int(random.integers(batch, x.ndim))
    indices = random.integers(0, x.shape[axis], shape_of(random, rank=int(random.integers(0, 3)))).astype(np.int32)
    return [x, indices, np.int32(axis)], {}


def gather_batched(random: Any) -> Any:
    x = numbers(random, shape_of(random, rank=3))
    indices = random.integers(0, x.shape[1], (x.shape[0], 2)).astype(np.int32)
    return [x, indices, np.int32(1)], {"batch_dims": 1}


def nd(random: Any) -> tuple[Any, Any, Any]:
    """An array, indices into its first axes without repetition, and updates."""
    x = numbers(random, shape_of(random, rank=3))
    depth = int(random.integers(1, 4))
    flat = random.permutation(int(np.prod(x.shape[:depth])))[: int(random.integers(1, 4))]
    indices = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int32)
    return x, indices, numbers(random, (len(flat), *x.shape[depth:]))


def scatter_nd(name: str, random: Any) -> Any:
    x, indices, updates = nd(random)
    shape = np.array(x.shape, np.int32)
    return [indices, updates], lambda raw, a, b: raw.ScatterNd(indices=a, updates=b, shape=shape)


def segments(random: Any) -> Any:
    x = some(random)
    return [x, random.integers(0, 5, x.shape[:1]).astype(np.int32), np.int32(5)], {}


def sorted_segments(random: Any) -> Any:
    x = some(random)
    return [x, np.sort(random.integers(0, 3, x.shape[:1])).astype(np.int32)], {}


def blocks(random: Any) -> Any:
    x = numbers(random, (2, 4, 6, int(random.integers(1, 3))))
    return [x, np.array([2, 3], np.int32), np.array([[1, 1], [0, 3]], np.int32)], {}


def from_blocks(random: Any) -> Any:
    x = numbers(random, (12, 3, 2, int(random.integers(1, 3))))
    return [x, np.array([2, 3], np.int32), np.array([[1, 1], [0, 2]], np.int32)], {}


def _rows(random: Any) -> tuple[int, int]:
    return int(random.integers(1, 5)), int(random.integers(1, 6))


def sparse_entropy(random: Any) -> Any:
    rows, classes = _rows(random)
    return [numbers(random, (rows, classes)), random.integers(0, classes, rows).astype(np.int32)], {}


def entropy(random: Any) -> Any:
    rows, classes = _rows(random)
    return [numbers(random, (rows, classes)), numbers(random, (rows, classes), low=0.0)], {}


def top(random: Any) -> Any:
    x = random.permutation(60)[: int(random.integers(3, 12))].astype(np.float32)
    return [np.stack([x, x[::-1]]), np.int32(random.integers(1, len(x)))], {}


def in_top(random: Any) -> Any:
    rows, classes = int(random.integers(1, 5)), 7
    scores = np.stack([random.permutation(classes) for _ in range(rows)]).astype(np.float32)
    return [scores, random.integers(0, classes, rows).astype(np.int32), np.int32(random.integers(1, 4))], {}


def bincount(random: Any) -> Any:
    values = random.integers(0, 7, shape_of(random, rank=int(random.integers(1, 3)))).astype(np.int32)
    weights = numbers(random, values.shape if random.integers(0, 2) else (0,))
    return [values, np.int32(5), weights], {"binary_output": bool(random.integers(0, 2))}


def _matrices(random: Any, *, batched: bool = False) -> tuple[Any, Any, bool, bool]:
    m, k, n = (int(size) for size in random.integers(1, 5, 3))
    left, right = bool(random.integers(0, 2)), bool(random.integers(0, 2))
    batch = (int(random.integers(1, 4)),) if batched else ()
    a, b = numbers(random, (*batch, m, k)), numbers(random, (*batch, k, n))
    return (np.swapaxes(a, -1, -2) if left else a), (np.swapaxes(b, -1, -2) if right else b), left, right


def matmul(random: Any) -> Any:
    a, b, left, right = _matrices(random)
    return [a, b], {"transpose_a": left, "transpose_b": right}


def batch_matmul(**more: Any) -> Callable[[Any], Any]:
    def make(random: Any) -> Any:
        a, b, left, right = _matrices(random, batched=True)
        return [a, b], {"adj_x": left, "adj_y": right, **more}

    return make


def like(name: str, random: Any) -> Any:
    x = some(random, 0)
    return [x], lambda raw, a: getattr(raw, name)(x=a) + 0 * a


def sized(random: Any, rank: int, *, most: int = 4) -> Any:
    return numbers(random, shape_of(random, most, rank))


def _axis(random: Any, x: Any) -> Any:
    """An axis, counted from the beginning or from the end."""
    return np.int32(random.integers(-x.ndim, x.ndim))


def along(**more: bool) -> Callable[[Any], Any]:
    """An operand, an axis, and attributes that are drawn."""

    def make(random: Any) -> Any:
        x = some(random)
        return [x, _axis(random, x)], {name: bool(random.integers(0, 2)) for name in more}

    return make


def broadcast(random: Any) -> Any:
    shape = shape_of(random, rank=int(random.integers(1, 5)))
    ones = tuple(1 if random.integers(0, 2) else n for n in shape)[int(random.integers(0, len(shape))) :]
    return [numbers(random, ones), np.array(shape, np.int32)], {}


def reshape(random: Any) -> Any:
    x = some(random)
    shape = [int(n) for n in np.array(x.shape)[random.permutation(x.ndim)]]
    if random.integers(0, 2):
        shape[int(random.integers(0, len(shape)))] = -1
    return [x, np.array(shape, np.int32)], {}


def reverse(random: Any) -> Any:
    x = some(random)
    return [x, np.array([axis for axis in range(x.ndim) if random.integers(0, 2)], np.int32)], {}


def roll(random: Any) -> Any:
    x = some(random)
    axes = [axis for axis in range(x.ndim) if random.integers(0, 2)]
    return [x, random.integers(-4, 5, len(axes)).astype(np.int32), np.array(axes, np.int32)], {}


def select_rows(random: Any) -> Any:
    shape = shape_of(random, rank=int(random.integers(1, 4)))
    condition = shape[:1] if random.integers(0, 2) else shape
    return [numbers(random, condition, "b"), numbers(random, shape), numbers(random, shape)], {}


def select(random: Any) -> Any:
    shape = shape_of(random, rank=int(random.integers(1, 4)))
    shapes = [tuple(1 if random.integers(0, 2) else n for n in shape) for _ in range(3)]
    return [numbers(random, operand_shape, kind) for operand_shape, kind in zip(shapes, "bff", strict=True)], {}


def _pixel_blocks(random: Any) -> tuple[list[int], int]:
    """Images of one pixel for every block, and the size of a block."""
    return [int(size) for size in random.integers(1, 4, 4)], int(random.integers(2, 4))


def to_depth(random: Any) -> Any:
    (n, h, w, c), block = _pixel_blocks(random)
    return [numbers(random, (n, h * block, w * block, c))], {"block_size": block}


def to_space(random: Any) -> Any:
    (n, h, w, c), block = _pixel_blocks(random)
    return [numbers(random, (n, h, w, c * block * block))], {"block_size": block}


def split(name: str, random: Any) -> Any:
    shape, parts = list(shape_of(random, rank=int(random.integers(1, 5)))), int(random.integers(1, 4))
    axis = int(random.integers(0, len(shape)))
    sizes = random.integers(1, 4, parts) if name == "SplitV" else np.full(parts, shape[axis])
    shape[axis] = int(sizes.sum())
    x, where = numbers(random, tuple(shape)), np.int32(axis - len(shape) * int(random.integers(0, 2)))
    if name == "Split":
        return [x], lambda raw, v: raw.Split(axis=where, value=v, num_split=parts)
    split_sizes = sizes.astype(np.int32)
    if random.integers(0, 2):
        split_sizes[int(random.integers(0, parts))] = -1
    return [x], lambda raw, v: raw.SplitV(value=v, size_splits=split_sizes, axis=where, num_split=parts)


def squeeze(random: Any) -> Any:
    shape = tuple(1 if random.integers(0, 2) else n for n in shape_of(random, rank=int(random.integers(1, 5))))
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    return [numbers(random, shape)], {"axis": [axis for axis in ones if random.integers(0, 2)]}


def tile(random: Any) -> Any:
    x = some(random)
    return [x, random.integers(1, 4, x.ndim).astype(np.int32)], {}


def unpack(random: Any) -> Any:
    x = some(random)
    axis = int(_axis(random, x))
    return [x], {"num": x.shape[axis], "axis": axis}


def pack(random: Any) -> Any:
    x = some(random)
    return [x, x + 1, -x][: int(random.integers(1, 4))], {"axis": int(random.integers(-x.ndim - 1, x.ndim + 1))}


def expand(random: Any) -> Any:
    x = some(random)
    return [x, np.int32(random.integers(-x.ndim - 1, x.ndim + 1))], {}


def volumes(random: Any) -> Any:
    channels = int(random.integers(1, 4))
    x = numbers(random, (int(random.integers(1, 3)), *(int(n) for n in random.integers(3, 6, 3)), channels))
    w = numbers(random, (*(int(n) for n in random.integers(1, 4, 3)), channels, int(random.integers(1, 4))))
    strides = [1, *(int(n) for n in random.integers(1, 3, 3)), 1]
    return [x, w], {"strides": strides, "padding": random.choice(("SAME", "VALID"))}


_EQUATIONS = {"abc,cd->bad": (3, 2), "ab,cb->ac": (2, 2), "abc,abd->cd": (3, 3), "ab,a->b": (2, 1), "abc,c->": (3, 1)}


def einsum(random: Any) -> Any:
    equation = random.choice(list(_EQUATIONS))
    sizes = {letter: int(random.integers(1, 5)) for letter in "abcd"}
    operands = [
        numbers(random, tuple(sizes[letter] for letter in term)) for term in equation.split("->")[0].split(",")
    ]
    return operands, {"equation": equation}


def response(random: Any) -> Any:
    return [sized(random, 4, most=7)], {
        "depth_radius": int(random.integers(1, 4)),
        "bias": 1.5,
        "alpha": 0.3,
        "beta": 0.6,
    }


def band(random: Any) -> Any:
    x = sized(random, int(random.integers(2, 4)))
    return [x, *(np.int32(random.integers(-1, n + 1)) for n in x.shape[-2:])], {}


def square(random: Any) -> Any:
    n = int(random.integers(1, 5))
    return [numbers(random, (n, n))], {}


def set_diagonal(random: Any) -> Any:
    x = sized(random, int(random.integers(2, 4)))
    return [x, numbers(random, (*x.shape[:-2], min(x.shape[-2:])))], {}


def lookup(random: Any) -> Any:
    x = some(random)
    return [x, random.integers(0, len(x), shape_of(random, rank=int(random.integers(0, 3)))).astype(np.int32)], {}


def _positive(random: Any) -> Any:
    return numbers(random, shape_of(random), low=0.5, high=3.0)


def accumulated(name: str, random: Any) -> Any:
    """TensorFlow creates this op only when it rewrites a graph."""
    from tensorflow.python.eager import context

    x = fixed(random)

    def both(raw: Any, a: Any, b: Any) -> Any:
        if context.executing_eagerly():
            return raw.AddN(inputs=[a, b])
        return raw.AccumulateNV2(inputs=[a, b], shape=list(x.shape))

    return [x, x + 1], both


def sizes(name: str, random: Any) -> Any:
    x = some(random, 0)
    if name == "ShapeN":
        return [x], lambda raw, a: [*raw.ShapeN(input=[a, a])]
    return [x], lambda raw, a: getattr(raw, name)(input=a)


def fixed(random: Any) -> Any:
    shape = shape_of(random, rank=int(random.integers(1, 5)))
    return numbers(random, shape)
