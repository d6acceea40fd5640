"""Randomness: the part of a session that sets and reads the state of random numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ipu_emu.engine import Engine
from ipu_emu.errors import SessionError
from ipu_emu.ops.random.counter_rng import has_key
from ipu_emu.popart.session.compilation import Compilation

__all__ = ["Randomness"]


class Randomness(Compilation):
    """A state is a seed and the number of steps since it was set."""

    @property
    def _loaded(self) -> Engine:
        raise AssertionError("a session has the engine")

    def setRandomSeed(self, seed: int) -> None:
        """Draw other random numbers from the next step on; they depend on nothing but this, and what draws them."""
        if not has_key(self._graph):
            warnings.warn("The model has no random behaviour; its seed has no effect", stacklevel=2)
            return
        self._loaded.seed = int(seed) % (1 << 64)
        self._loaded.steps = 0

    def getRandomSeed(self) -> int:
        return self._loaded.seed if has_key(self._graph) else 0

    def getRNGState(self) -> list[int]:
        """The seed and the number of steps since it was set, each as two 32-bit numbers, low one first."""
        self._check_rng_option("get")
        engine = self._loaded
        return [value >> shift & 0xFFFFFFFF for value in (engine.seed, engine.steps) for shift in (0, 32)]

    def setRNGState(self, state: Sequence[int]) -> None:
        """Go on with the random numbers where ``getRNGState`` was called."""
        self._check_rng_option("set")
        if len(state) != 4:
            raise SessionError(f"A random number state of {len(state)} values was given; getRNGState gives 4")
        low_seed, high_seed, low_steps, high_steps = (int(value) for value in state)
        self._loaded.seed, self._loaded.steps = low_seed | high_seed << 32, low_steps | high_steps << 32

    def _check_rng_option(self, verb: str) -> None:
        if not self._options.enableLoadAndOffloadRNGState:
            raise SessionError(
                f"Trying to {verb} the RNG state, but the session option enableLoadAndOffloadRNGState must be set to "
                "True."
            )
