"""Rates: the shares of nominal rates that a modelled machine reaches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

__all__ = ["NOMINAL", "Rates"]


@dataclass(frozen=True)
class Rates:
    """Shares of nominal rates that are reached; ``compute`` and ``collectives`` are factors of an older release.

    ``convolution`` and ``product`` are shares of the peak of the matrix units; what is missing to 1 is in part the
    exchange of operands. ``factors``, by name, are those of a what-if: matrix, vector, ipu-links, gw-links, host,
    streaming, clock.
    """

    convolution: float = 1.0
    product: float = 1.0
    links: float = 1.0
    gateway: float = 1.0
    compute: float = 1.0
    collectives: float = 1.0
    factors: dict[str, float] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        return self.factors.get(name, 1.0)

    def what_if(self, factors: dict[str, float]) -> Rates:
        """These rates with further ``factors``."""
        return replace(self, factors=self.factors | {n: self.factor(n) * f for n, f in factors.items()})


NOMINAL = Rates()
