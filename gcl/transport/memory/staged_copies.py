"""Staged copies: runs a kernel on copies, in the shared segment, of tensors that are outside it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcl.core.prepared_call import DONE
from gcl.kernels.copies import copying


class StagedCopies:
    """A kernel that runs on copies of tensors which other ranks cannot address.

    ``bring`` is (copy, input), ``take`` (output, copy); one may be the other, which is not copied. It does not keep
    the tensors themselves alive.
    """

    def __init__(
        self, run: Callable[[], int], bring: tuple[np.ndarray, np.ndarray], take: tuple[np.ndarray, np.ndarray]
    ) -> None:
        own = bring[1], take[0]
        self._near = [near for near in (bring[0], take[1]) if not any(near is tensor for tensor in own)]
        self._run, self._begun = run, False
        self._bring, self._take = copying(*bring), copying(*take)

    def __call__(self) -> int:
        if not self._begun:
            self._bring()
        status = self._run()
        self._begun = status != DONE
        if status == DONE:
            self._take()
        return status
