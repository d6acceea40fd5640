"""Encoded steps on arrays, executed one after the other."""

import numpy as np

from gcl.core.operators import Operator
from gcl.reduce.encoded_steps import clear, combine, copy, in_order, run_steps
from gcl.reduce.reduction import new_scratch, recipe


def test_steps_are_executed_in_their_order() -> None:
    a, b, c, d = (np.full(5000, value, np.float32) for value in (1, 2, 3, 4))
    total = recipe(Operator.ADD, (1, 1, 1), a.dtype, a.dtype, 3)
    halves = recipe(Operator.MEAN, (1, 1), a.dtype, a.dtype, 2)
    steps = [copy(d, a), combine(total, [a, b, d], [c, d]), clear(b[10:20]), combine(halves, [c, b], [b])]
    run_steps(in_order(steps), new_scratch())
    assert (a == 1).all()
    assert (c == 4).all()
    assert (d == 4).all()
    assert (b[:10] == 3).all()
    assert (b[10:20] == 2).all()
    assert (b[20:] == 3).all()


def test_no_step_is_no_work() -> None:
    run_steps(in_order([]), new_scratch())
