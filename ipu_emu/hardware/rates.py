"""Rates: the shares of nominal rates that a modelled machine reaches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

__all__ = ["NOMINAL", "Rates"]

#: Hosts of a group.
_GROUP = 64


@dataclass(frozen=True)
class Rates:
    """Shares of nominal rates that are reached; ``collectives`` is the factor of an older release on them.

    ``host_wait``: seconds that a step waits for each host but the first. ``convolution`` and ``product`` are shares
    of the peak of the matrix units; what is missing to 1 is in part the exchange of operands. ``factors``, by name,
    are those of a what-if: matrix, vector, ipu-links, gw-links, host, streaming, clock.
    """

    convolution: float = 1.0
    product: float = 1.0
    links: float = 1.0
    gateway: float = 1.0
    collectives: float = 1.0
    host_wait: float = 0.0
    factors: dict[str, float] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        return self.factors.get(name, 1.0)

    def waits(self, hosts: Any) -> Any:
        """Seconds in which the hosts of a step, or arrays of them, meet before a collective, one after the other.

        More than 64 are assumed to meet in groups, and then the groups.
        """
        return self.host_wait * (np.minimum(hosts, _GROUP) - 1 + np.ceil(hosts / _GROUP) - 1)

    def what_if(self, factors: dict[str, float]) -> Rates:
        """These rates with further ``factors``."""
        return replace(self, factors=self.factors | {n: self.factor(n) * f for n, f in factors.items()})


NOMINAL = Rates()
