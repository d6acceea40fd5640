"""Half precision: conversions of every half, compared with numpy."""

import numpy as np

from gcl.kernels.half import float_to_half, half_to_float
from tests.gcl.helpers.reference import same_bits

ALL = np.arange(1 << 16, dtype=np.uint16)


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
