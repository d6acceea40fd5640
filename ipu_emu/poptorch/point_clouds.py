"""Point clouds: ``nearest`` points, and samples of points that are far from each other (``fps``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, inf

import torch

from ipu_emu.poptorch.errors import Error


def nearest(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | Sequence[int] | None = None,
    batch_y: torch.Tensor | Sequence[int] | None = None,
) -> torch.Tensor:
    """Return for each point of ``x`` [N, D] the index of the nearest of ``y`` [M, D], of the same batch if given."""
    x, y = (points.reshape(-1, 1) if points.dim() == 1 else points for points in (x, y))
    if x.shape[1] != y.shape[1]:
        raise Error(
            f"nearest: points of x have {x.shape[1]} coordinates and those of y {y.shape[1]}; give equal numbers"
        )
    far = _squares(x[:, None], y[None])
    if batch_x is not None or batch_y is not None:
        of_x, of_y = _batches(batch_x, len(x)), _batches(batch_y, len(y))
        far = torch.where(of_x[:, None] == of_y[None], far, torch.full_like(far, inf))
    return far.argmin(dim=1)


def _batches(batches: torch.Tensor | Sequence[int] | None, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32) if batches is None else torch.as_tensor(batches)


def fps(
    src: torch.Tensor, ptr: Sequence[int] | torch.Tensor, ratio: float = 0.5, random_start: bool = False
) -> torch.Tensor:
    """Return indices of points of ``src`` [N, D], each the farthest from those before it.

    ``ptr`` are the starts of the batches, and N: constants. A batch of n points gives ceil(``ratio`` n) of them, from
    its first point on, or with ``random_start`` from any.
    """
    starts = [int(start) for start in (ptr.tolist() if isinstance(ptr, torch.Tensor) else ptr)]
    if not 0 < ratio <= 1:
        raise Error(f"fps: a ratio of {ratio:g} is not possible; use more than 0 and at most 1")
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(src) or any(b <= a for a, b in pairwise(starts)):
        raise Error(f"fps: ptr {starts} does not divide {len(src)} points; give 0, the later starts, and {len(src)}")
    points = src.reshape(len(src), -1)
    indices = [
        index + low
        for low, high in pairwise(starts)
        for index in _farthest(points[low:high], ceil(ratio * (high - low)), random_start)
    ]
    return torch.cat(indices)


def _farthest(points: torch.Tensor, count: int, random_start: bool) -> Iterator[torch.Tensor]:
    """Indices as tensors of one element."""
    index = torch.randint(0, len(points), (1,)) if random_start else torch.zeros(1, dtype=torch.int64)
    far = _squares(points, points.index_select(0, index))
    yield index
    for _ in range(count - 1):
        index = far.argmax(dim=0, keepdim=True)
        yield index
        far = torch.minimum(far, _squares(points, points.index_select(0, index)))


def _squares(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a - b).square().sum(dim=-1)
