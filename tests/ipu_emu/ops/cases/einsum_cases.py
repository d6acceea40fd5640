"""Cases of sums of products, and of triangles."""

from __future__ import annotations

from typing import Any

from tests.ipu_emu.ops.cases.case import Case, case, custom_op

__all__ = ["MATRICES"]


def einsum(equation: str, *shapes: tuple[int, ...]) -> Case:
    def torch_einsum(torch: Any, *values: Any) -> Any:
        return torch.einsum(equation, *values)

    build = custom_op("Einsum", 12, equation=equation)
    return case("Einsum", equation, shapes, build, torch_einsum, compound=True, onnx=False)


def triangle(upper: int, shape: tuple[int, ...]) -> Case:
    def triangular(torch: Any, x: Any) -> Any:
        return x.triu() if upper else x.tril()

    build = custom_op("Trilu", 14, upper=upper)
    return case("Trilu", f"{upper} {shape}", [shape], build, triangular, onnx=False)


MATRICES = [
    einsum("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    einsum("bij,bjk", (2, 3, 4), (2, 4, 5)),
    einsum("ij,jk,kl->li", (2, 3), (3, 4), (4, 2)),
    einsum("...ij,...jk->...ik", (2, 1, 3, 4), (3, 4, 2)),
    einsum("ij,kl->ik", (2, 3), (4, 5)),
    einsum("bii->bi", (2, 3, 3)),
    einsum("ij->", (2, 3)),
    triangle(1, (3, 4)),
    triangle(0, (2, 4, 3)),
]
