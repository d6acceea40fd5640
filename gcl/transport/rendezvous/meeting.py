"""Meeting: ranks that share memory wait for each other before and after work outside of compiled kernels."""

from __future__ import annotations

import secrets
from functools import partial

import numpy as np

from gcl.core.prepared_call import DONE, WAITING
from gcl.kernels.jit import bound
from gcl.transport.rendezvous import rank_table

__all__ = ["Meeting"]


class Meeting:
    """``enter`` with ``call``, of which a replica's input and output have ``nbytes``; then ``leave``.

    Each is called until it is DONE. Between them, ``places`` says where all inputs and outputs start, [2, replicas].
    """

    def __init__(self, words: np.ndarray, call: np.ndarray, nbytes: list[int]) -> None:
        self.places = np.zeros((2, int(words[rank_table.REPLICAS])), np.int64)
        self._enter, self._leave = bound(rank_table.enter, words, call), bound(rank_table.leave, words)
        self._look = bound(rank_table.look, words, np.array(nbytes, np.int64), self.places)
        self._signature = partial(rank_table.signature_of_all, words)

    def enter(self) -> int:
        """Meet with the call."""
        return DONE if self._enter() else WAITING

    def signature(self) -> int:
        """The signature of what all ranks called; one that no other host has if they called different collectives."""
        found = self._signature()
        return secrets.randbits(62) if found is None else found

    def look(self) -> bool:
        """Read ``places``; say whether they are others than at the last call."""
        return bool(self._look())

    def leave(self) -> int:
        """Meet again: what every rank wrote is there."""
        return DONE if self._leave() else WAITING
