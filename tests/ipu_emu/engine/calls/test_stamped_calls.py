"""Stamped calls: all calls run in order, the time is written after each group, and no call follows an error."""

from __future__ import annotations

from time import perf_counter_ns

import pytest

from ipu_emu.engine.calls.instruction_trace import stamped_calls


def test_calls_run_in_order_and_the_time_is_written_after_each_group():
    words, seen = memoryview(bytearray(8 * 8)).cast("q"), []

    def call(number):
        return lambda: seen.append((number, [word != 0 for word in words]))

    run = stamped_calls([[call(0), call(1)], [], [call(2)]])
    begin = perf_counter_ns()
    run(words, 3)
    assert seen == [(0, [False] * 8), (1, [False] * 8), (2, [False] * 3 + [True] * 2 + [False] * 3)]
    assert not any([*words[:3], *words[6:]])
    assert begin <= words[3] <= words[4] <= words[5] <= perf_counter_ns()


def test_an_error_ends_the_round_where_it_is_raised():
    words = memoryview(bytearray(8 * 8)).cast("q")
    run = stamped_calls([[lambda: None], [lambda: 1 // 0], [lambda: None]])
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            run(words, 0)
    assert [word != 0 for word in words] == [True] + [False] * 7


def test_a_call_may_be_stamped_several_times_among_any_number_of_calls():
    seen: list[int] = []
    words = memoryview(bytearray(8 * 3000)).cast("q")
    stamped_calls([[lambda: seen.append(1)] * 2] * 2048)(words, 0)
    assert len(seen) == 2 * 2048
    assert all(words[:2048])
    assert not any(words[2048:])
