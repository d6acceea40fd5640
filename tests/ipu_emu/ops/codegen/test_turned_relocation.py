"""Transposing copies: compared with numpy's, for all orders of axes and sizes that do not fill whole squares."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ipu_emu.ops.codegen.compiled_call import turned_relocation


@pytest.mark.parametrize("shape", [(4, 2, 2, 96), (3, 9, 8, 17), (8, 1, 11, 4), (2, 3, 5, 64)], ids=str)
@pytest.mark.parametrize("perm", list(permutations(range(4))), ids=str)
def test_axes_in_any_order(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    source = np.random.default_rng(0).standard_normal(shape).astype(np.float32).transpose(perm)
    memory = np.full(source.size + 64, 7, np.float32)
    target = memory[32:-32].reshape(source.shape)
    call = turned_relocation(source, target)
    if call is not None:
        call()
        np.testing.assert_array_equal(target, source)
        assert (memory[:32] == 7).all()
        assert (memory[-32:] == 7).all()


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((4, 16, 16, 96), (3, 1, 2, 0)),
        ((96, 16, 16, 4), (3, 1, 2, 0)),
        ((768, 2, 2, 4), (3, 1, 2, 0)),
        ((4, 6, 64, 128), (0, 3, 1, 2)),
        ((65, 64), (1, 0)),
    ],
    ids=str,
)
def test_large_matrices_are_transposed(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    source = np.random.default_rng(0).standard_normal(shape).astype(np.float32).transpose(perm)
    target = np.zeros(source.shape, np.float32)
    call = turned_relocation(source, target)
    assert call is not None
    call()
    np.testing.assert_array_equal(target, source)


def test_copies_that_transpose_nothing_or_little() -> None:
    x = np.zeros((4, 8, 16), np.float32)
    assert turned_relocation(x.transpose(1, 0, 2), np.zeros((8, 4, 16), np.float32)) is None
    assert turned_relocation(x.astype(np.float16).T, np.zeros((16, 8, 4), np.float16)) is None
    assert turned_relocation(x[:, :3, :3].T, np.zeros((3, 3, 4), np.float32)) is None
    assert turned_relocation(x[:0].T, np.zeros((16, 8, 0), np.float32)) is None
