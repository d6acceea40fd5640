"""When a collective that was begun starts: at once with a core of its own, else as soon as some rank waits for it."""

import time
from threading import Event
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from gcl.torch.background import Background
from gcl.torch.one_host.host_group import HostGroup

pytestmark = pytest.mark.torch


def compute_until(seconds, what=lambda: False):
    """Keep this thread's core busy; return the seconds until ``what`` became true."""
    since = time.monotonic()
    while time.monotonic() < since + seconds and not what():
        pass
    return time.monotonic() - since


def test_with_its_own_core_it_starts_while_the_program_computes():
    ran = Event()
    Background(lambda: True, lambda: False).begin(ran.set)
    assert compute_until(5, ran.is_set) < 0.3


def test_without_its_own_core_it_starts_when_the_program_waits():
    ran, background = Event(), Background(lambda: False, lambda: False)
    wait = background.begin(ran.set)
    compute_until(0.2)
    assert not ran.is_set()
    assert wait(5)
    assert ran.is_set()


def test_it_starts_when_the_program_waits_for_something_else():
    ran = Event()
    Background(lambda: False, lambda: False).begin(ran.set)
    since = time.monotonic()
    assert ran.wait(5)  # as in the wait of a future, which does not say that it waits
    assert time.monotonic() - since < 0.3


def test_it_starts_when_another_rank_waits():
    ran, awaited = Event(), Event()
    Background(lambda: False, awaited.is_set).begin(ran.set)
    compute_until(0.1)
    assert not ran.is_set()
    awaited.set()
    assert compute_until(5, ran.is_set) < 0.3


def test_it_starts_in_the_end_where_all_ranks_only_ask():
    ran = Event()
    Background(lambda: False, lambda: False).begin(ran.set)
    assert 0.3 < compute_until(5, ran.is_set) < 3


def test_all_earlier_ones_run_before_the_one_that_is_waited_for():
    ran, background = [], Background(lambda: False, lambda: False)
    waits = [background.begin(lambda i=i: ran.append(i)) for i in range(3)]
    assert waits[1](5)
    assert ran == [0, 1]
    background.drain()
    assert ran == [0, 1, 2]
    background.stop()


@pytest.mark.parametrize(
    ("ranks", "cores", "waiting", "begins"),
    [(2, 2, 0, False), (2, 2, 1, True), (8, 2, 1, False), (8, 2, 6, False), (8, 2, 7, True), (4, 8, 1, True)],
)
def test_ranks_that_wait_are_joined_once_they_leave_a_core_free(monkeypatch, ranks, cores, waiting, begins):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    group = HostGroup.__new__(HostGroup)
    group.ranks, group.cores, group.path = ranks, cores, SimpleNamespace(waiting=waiting)
    assert group.is_awaited() is begins
