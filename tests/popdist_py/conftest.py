"""Fixtures of popdist_py's tests: an instance's environment, in this process."""

from collections.abc import Callable

import pytest

from popdist_py import Layout, popdist_core
from popdist_py.environment import NAMES, Environment


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts as a program without a launcher, before init()."""
    for name in NAMES.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(popdist_core.process, "backend", None)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """become(instance, 2, 2): act as that instance of a job whose instances have these numbers of local replicas."""

    def set_environment(instance: int, *counts: int, ipus_per_replica: int = 1) -> None:
        environment = Environment.of_instance(
            Layout.of(counts), instance, ipus_per_replica=ipus_per_replica, local_instance_index=instance
        )
        for name, value in environment.to_environ().items():
            monkeypatch.setenv(name, value)

    return set_environment
