"""Host clocks: times of hosts whose clocks differ, converted to the launcher's clock."""

from __future__ import annotations

import random

from poprun_py.job.job_state import HostClocks


def test_a_time_of_another_host_is_late_by_what_its_quickest_message_took():
    clocks, dice = HostClocks(), random.Random(1)
    ahead = {"here": 0.0, "rebooted": -80_000.0, "old": 3e6}  # of the launcher's
    delays = {host: [dice.uniform(0.001, 0.2) for _ in range(5)] for host in ahead}
    for host, offset in ahead.items():
        for sent, delay in enumerate(delays[host]):
            clocks.hear(host, sent + offset, sent + delay)
    for host, offset in ahead.items():
        at = 9.0 + offset
        assert abs(at + clocks.difference(host) - 9.0 - min(delays[host])) < 1e-6


def test_a_host_that_has_not_been_heard_is_taken_to_have_the_same_clock():
    assert HostClocks().difference("h") == 0.0
