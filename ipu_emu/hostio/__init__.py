"""hostio: moves step data between data sets and replicas, and state between replicas and checkpoints."""

from ipu_emu.hostio.data.data_modes import DataMode, RepeatedFeed, like_real, mode_of, synthetic_chunk
from ipu_emu.hostio.data.sample_order import ReplicaRange
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.hostio.feeds.feed import Feed
from ipu_emu.hostio.feeds.step_feed import CallbackFeed, StepFeed, check_sizes
from ipu_emu.hostio.probe.probe import Probe, StepProbe
from ipu_emu.hostio.weights_digest import digest

__all__ = [
    "ArrayFeed", "CallbackFeed", "DataMode", "Feed", "Probe", "RepeatedFeed", "ReplicaRange", "StepFeed", "StepProbe",
    "check_sizes", "digest", "like_real", "mode_of", "synthetic_chunk",
]  # fmt: skip
