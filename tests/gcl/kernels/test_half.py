"""Half precision: conversions of every half, compared with numpy."""

from typing import Any

import numpy as np
from numba import types

from gcl.kernels.element_loops import narrow_half, widen_half
from gcl.kernels.jit import intrinsic, jit
from tests.gcl.helpers.reference import same_bits

ALL = np.arange(1 << 16, dtype=np.uint16)


@intrinsic
def _float_of_half(typing_context: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return widen_half(builder, *arguments)

    return types.float32(types.uint16), codegen


@intrinsic
def _half_of_float(typing_context: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return narrow_half(builder, *arguments)

    return types.uint16(types.float32), codegen


@jit
def half_to_float(bits: np.ndarray, out: np.ndarray) -> None:
    """Widen ``bits`` (uint16 [n], a view of float16) into ``out`` (float32 [n])."""
    for i in range(out.size):
        out[i] = _float_of_half(bits[i])


@jit
def float_to_half(values: np.ndarray, out: np.ndarray) -> None:
    """Round ``values`` (float32 [n]) into ``out`` (uint16 [n], a view of float16), ties to even."""
    for i in range(out.size):
        out[i] = _half_of_float(values[i])


def test_all_halves_widen_as_in_numpy() -> None:
    widened = np.empty(ALL.size, np.float32)
    half_to_float(ALL, widened)
    assert same_bits(widened, ALL.view(np.float16).astype(np.float32))


def test_all_halves_come_back() -> None:
    values, back = ALL.view(np.float16).astype(np.float32), np.empty_like(ALL)
    float_to_half(values, back)
    assert same_bits(back.view(np.float16), ALL.view(np.float16))


def test_ties_go_to_even_and_neighbours_of_ties_do_not() -> None:
    finite = ALL[ALL < 0x7BFF].view(np.float16).astype(np.float64)
    ties = ((finite + ALL[1:0x7C00].view(np.float16).astype(np.float64)) / 2).astype(np.float32)
    values = np.concatenate([ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))])
    rounded = np.empty(values.size, np.uint16)
    float_to_half(values, rounded)
    assert same_bits(rounded.view(np.float16), values.astype(np.float16))
    assert not np.any(rounded[: ties.size] % 2)


def test_any_float_rounds_as_in_numpy() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1_000_003, dtype=np.uint32)
    near_one = (bits & 0x8FFFFFFF) | 0x30000000
    for values in (bits.view(np.float32), near_one.view(np.float32)):
        rounded = np.empty(values.size, np.uint16)
        float_to_half(values, rounded)
        with np.errstate(all="ignore"):
            assert same_bits(rounded.view(np.float16), values.astype(np.float16))
