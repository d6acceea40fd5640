"""hostio: how step data gets from the user's data set to the replicas and back."""

from ipu_emu.hostio.arrays import ArrayFeed
from ipu_emu.hostio.benchmark import dataset_benchmark, infeed_benchmark
from ipu_emu.hostio.callbacks import CallbackFeed
from ipu_emu.hostio.feed import Feed
from ipu_emu.hostio.modes import DataMode, mode_of
from ipu_emu.hostio.order import Share
from ipu_emu.hostio.probe import Probe
from ipu_emu.hostio.queues import InfeedQueue, OutfeedMode, OutfeedQueue
from ipu_emu.hostio.sizes import check_sizes
from ipu_emu.hostio.standin import RepeatedFeed, like_real
from ipu_emu.hostio.stepfeed import StepFeed
from ipu_emu.hostio.stepprobe import StepProbe
from ipu_emu.hostio.synthetic import synthetic_chunk

__all__ = [
    "ArrayFeed",
    "CallbackFeed",
    "DataMode",
    "Feed",
    "InfeedQueue",
    "OutfeedMode",
    "OutfeedQueue",
    "Probe",
    "RepeatedFeed",
    "Share",
    "StepFeed",
    "StepProbe",
    "check_sizes",
    "dataset_benchmark",
    "infeed_benchmark",
    "like_real",
    "mode_of",
    "synthetic_chunk",
]
