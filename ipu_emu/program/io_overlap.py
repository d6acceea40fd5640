"""Overlap: whether the host exchanges a tensor just in time, or beside the compute of the neighbouring micro-batch.

Two batches of three micro-batches; L loads, C computes, S stores, U updates the weights:

    NONE     compute      C0       C1       C2    U     C3       C4       C5    U
             I/O       L0    S0 L1    S1 L2    S2    L3    S3 L4    S4 L5    S5

    INNER    compute      C0  C1  C2       U     C3  C4  C5       U
             I/O       L0 L1  L2      S2      L3 L4  L5      S5
                              S0  S1                 S3  S4

    LOOPS    compute      C0  C1  C2  U  C3  C4  C5  U
             I/O       L0 L1  L2  L3     L4  L5         S5
                              S0  S1     S2  S3  S4

A tensor that is exchanged beside compute has a place more in memory: one is used while the other is filled or
emptied. What lives on between micro-batches, as weights do, has one place, and is always stored just in time.

STAGED inputs are loaded into Streaming Memory, up to several micro-batches ahead, from where the IPU takes them.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Overlap"]


class Overlap(Enum):
    """Which exchanges between two micro-batches are hidden: none, those within a batch, all of a step, all."""

    NONE = ""
    INNER = " (beside its neighbour in the batch)"
    LOOPS = " (beside its neighbour)"
    STAGED = " (ahead, into Streaming Memory)"
