"""RandomState: the seed of a session's random numbers, and the number of steps since it was set."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from ipu_emu.engine import Engine
from ipu_emu.errors import SessionError
from ipu_emu.graph import Graph
from ipu_emu.hostio import DataMode
from ipu_emu.ops.random.counter_rng import has_key
from ipu_emu.session.options.compile_options import data_mode
from ipu_emu.session.options.session_options import SessionOptions


class RandomState:
    """The engine holds the state; ``engine`` raises SessionError if it does not exist yet."""

    def __init__(self, graph: Graph, options: SessionOptions) -> None:
        self._graph, self._options = graph, options

    def set_seed(self, engine: Callable[[], Engine], seed: int) -> None:
        """Restart the random numbers with ``seed``; warn if nothing is random."""
        if not has_key(self._graph):
            warnings.warn("The model has no random behaviour; its seed has no effect", stacklevel=3)
            return
        engine().seed = int(seed) % (1 << 64)
        engine().steps = 0

    def seed(self, engine: Callable[[], Engine]) -> int:
        return engine().seed if has_key(self._graph) else 0

    def state(self, engine: Callable[[], Engine]) -> list[int]:
        """Return seed and steps, each as two 32-bit numbers, low one first; nothing with synthetic data."""
        self._check_option("get")
        if data_mode(self._options) is DataMode.SYNTHETIC:
            return []
        values = engine().seed, engine().steps
        return [value >> shift & 0xFFFFFFFF for value in values for shift in (0, 32)]

    def set_state(self, engine: Callable[[], Engine], state: Sequence[int]) -> None:
        """Restore a state that ``state`` returned."""
        self._check_option("set")
        if not len(state) and data_mode(self._options) is DataMode.SYNTHETIC:
            return
        if len(state) != 4:
            raise SessionError(f"A random number state of {len(state)} values was given; getRNGState gives 4")
        low_seed, high_seed, low_steps, high_steps = (int(value) for value in state)
        engine().seed, engine().steps = low_seed | high_seed << 32, low_steps | high_steps << 32

    def _check_option(self, verb: str) -> None:
        if not self._options.enableLoadAndOffloadRNGState:
            raise SessionError(
                f"Trying to {verb} the RNG state, but the session option enableLoadAndOffloadRNGState must be set to "
                "True."
            )
