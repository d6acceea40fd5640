"""Limits: the limit of open files is raised to what a job needs, or the job is refused with the cure."""

from __future__ import annotations

import resource

import pytest

from poprun_py.errors import PoprunError
from poprun_py.linux.limits import allow_open_files


@pytest.fixture
def limits(monkeypatch):
    """A limit that is not this process's own."""
    state = [(20, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: state[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: state.__setitem__(0, value))
    return state


def test_a_limit_that_is_too_low_is_raised_as_far_as_needed(limits):
    allow_open_files(2)
    assert limits == [(60, 1000)]


@pytest.mark.parametrize("given", [(4096, 4096), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)])
def test_a_limit_that_is_high_enough_stays(limits, given):
    limits[0] = given
    allow_open_files(4)
    assert limits == [given]


def test_a_job_that_may_not_open_enough_files_is_refused(limits):
    limits[0] = (10, 10)
    with pytest.raises(
        PoprunError, match=r"a job of 2 instances needs 60 open files, and 10 are allowed .*ulimit -n 60"
    ):
        allow_open_files(2)
