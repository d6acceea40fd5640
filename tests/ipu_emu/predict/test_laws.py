"""Laws of scaling, with the speed-up of each."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.laws import (
    amdahl,
    fit_accumulation,
    gustafson,
    karp_flatt,
    nonnegative,
    universal,
    universal_fit,
)


def test_the_example_of_the_note_is_gustafsons() -> None:
    """50 % constant, four times the compute: 2.5x is the speed-up of scaled work; the same work gets 1.6x."""
    assert amdahl(0.5, 4) == 1.6
    assert gustafson(0.5, 4) == 2.5


@pytest.mark.parametrize(("constant", "compute"), [(0.0, 8.0), (1.0, 8.0), (0.3, 1.0)])
def test_limits(constant: float, compute: float) -> None:
    assert amdahl(constant, compute) == pytest.approx(gustafson(constant, compute))


def test_karp_flatt_undoes_amdahl() -> None:
    assert karp_flatt(amdahl(0.07, 16), 16) == pytest.approx(0.07)


def test_two_points_have_no_degree_of_freedom() -> None:
    for points, t, c in (
        (((6, 69.75e-3), (2, 30.69e-3)), 9.765e-3, 11.16e-3),
        (((10, 108.32e-3), (3, 35.55e-3)), 10.3957e-3, 4.363e-3),
    ):
        fit = fit_accumulation(points)
        assert (fit.micro_batch, fit.constant) == (pytest.approx(t, rel=1e-5), pytest.approx(c, rel=1e-3))
        assert fit.freedom == 0
        assert max(map(abs, fit.residuals)) < 1e-12


def test_more_points_test_the_line() -> None:
    fit = fit_accumulation([(1, 3.0), (2, 5.1), (4, 9.0)])
    assert fit.freedom == 1
    assert fit.micro_batch == pytest.approx(2.0, rel=0.02)
    assert 0 < max(map(abs, fit.residuals)) < 0.03
    assert fit.seconds(8) == pytest.approx(8 * fit.micro_batch + fit.constant)


def test_mistakes() -> None:
    for wrong in (lambda: amdahl(1.1, 2), lambda: gustafson(0.5, 0), lambda: karp_flatt(1, 1)):
        with pytest.raises(EmulatorError):
            wrong()
    for points in ([], [(2, 1.0), (2, 1.1)], [(1, 1.0), (2, 0.0)]):
        with pytest.raises(EmulatorError):
            fit_accumulation(points)


def test_nonnegative_least_squares_meet_the_conditions_of_an_optimum() -> None:
    """Karush, Kuhn and Tucker: no slope where a coefficient is positive, an upward one where it is 0."""
    random = np.random.default_rng(1)
    for columns in (1, 2, 3):
        for _ in range(20):
            table, values = random.standard_normal((6, columns)), random.standard_normal(6)
            solution = nonnegative(table, values)
            slopes = table.T @ (table @ solution - values)
            assert solution.min() >= 0
            assert slopes.min() > -1e-9
            assert abs(slopes @ solution) < 1e-9


def test_the_universal_law_is_recovered() -> None:
    counts = (1, 2, 4, 8)
    assert universal(0.05, 0.0, 16) == pytest.approx(amdahl(0.05, 16))  # without coherence it is Amdahl's
    assert universal_fit(counts, [universal(0.05, 0.01, n) for n in counts]) == pytest.approx((0.05, 0.01))
    assert universal_fit(counts, [1.1 * n for n in counts]) == (0.0, 0.0)
