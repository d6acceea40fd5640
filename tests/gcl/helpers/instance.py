"""Instance: the common part of programs of multi-process tests, which connect the replicas of their instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gcl
import popdist_py

__all__ = ["connect", "error_of"]


def connect(**options: Any) -> gcl.Communicator:
    """A communicator of all replicas of the job, unless ``options`` say otherwise."""
    popdist_py.init()
    place: dict[str, Any] = {
        "local_replicas": popdist_py.getNumLocalReplicas(),
        "global_offset": popdist_py.getReplicaIndexOffset(),
        "global_replicas": popdist_py.getNumTotalReplicas(),
        "timeout": 200.0,
    }
    return gcl.connect(**place | options)


def error_of(work: Callable[[], object]) -> str:
    """The error of gcl or popdist_py that ``work`` ends with, as a line of text."""
    try:
        work()
    except (gcl.GclError, popdist_py.PopdistError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
