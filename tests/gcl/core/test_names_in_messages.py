"""Names in messages: communicators print rank and group; errors for misspelt operators suggest the right one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gcl


def test_a_communicator_prints_its_replicas_and_its_transport() -> None:
    assert repr(gcl.connect(local_replicas=2)).startswith("Communicator(replicas 0 to 1 of 2, ")


def test_the_error_for_a_misspelt_operator_suggests_the_right_one() -> None:
    communicator = gcl.connect(local_replicas=1)
    with pytest.raises(gcl.ArgumentError, match=r"'maen'.*add.*'mean'"):
        communicator.all_reduce(communicator.empty(1), "maen")


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: gcl.connect(local_replicas=1, transport="shared_memry"), "shared_memory"),
        (lambda: gcl.connect(local_replicas=1, method="clockwise_rings"), "clockwise_ring"),
        (lambda: gcl.schedule("all_reduc", gcl.Fabric(4), 8), "all_reduce"),
        (lambda: gcl.CommGroup("consecutiv", 2), "consecutive"),  # type: ignore[arg-type]
    ],
)
def test_other_misspelt_names_too(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(gcl.ArgumentError, match=rf"; did you mean '{meant}'\?$"):
        call()


def test_a_misspelt_option_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_OPTIONS", '{"metod": "auto"}')
    with pytest.raises(gcl.ArgumentError, match=r"'metod'.*'method'"):
        gcl.connect(local_replicas=1)
