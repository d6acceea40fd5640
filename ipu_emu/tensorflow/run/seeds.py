"""Seeds: the seed of random numbers that programs set for their device."""

from __future__ import annotations

from ipu_emu.tensorflow.trace.frontend_state import frontend_state


def set_seed(value: int) -> None:
    """Set the seed; programs start counting their runs anew."""
    state = frontend_state()
    state.seed, state.seeded = value & 0xFFFFFFFFFFFFFFFF, state.seeded + 1


def seed() -> tuple[int, int]:
    """The seed, and how often it was set."""
    state = frontend_state()
    return state.seed, state.seeded
