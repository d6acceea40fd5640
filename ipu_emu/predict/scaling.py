"""Scaling: predictions of a job on increasing numbers of IPUs, with the ideal line and both laws.

    weak      every replica keeps its accumulation; the global batch grows with the replicas
    strong    the global batch stays; accumulation shrinks, down to 1, and with it the overlap of transfers with
    compute

The laws start from the smallest size; their constant fraction is the time of its step outside compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.calibration.profile import Profile
from ipu_emu.predict.job import Job, smallest_pod
from ipu_emu.predict.laws import amdahl, gustafson
from ipu_emu.predict.prediction import Prediction, predict

_LARGEST = 65_536


@dataclass(frozen=True)
class ScalePoint:
    """A size, its prediction, and the throughput of the ideal line and of both laws."""

    ipus: int
    prediction: Prediction
    ideal: float
    amdahl: float
    gustafson: float

    @property
    def efficiency(self) -> float:
        """Throughput relative to the ideal line."""
        return self.prediction.throughput / self.ideal


def sizes_of(text: str) -> list[int]:
    """``16..65536`` (each twice the one before) or ``16,64,256`` as numbers of IPUs."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            sizes = [first]
            while 0 < sizes[-1] * 2 <= last:
                sizes.append(sizes[-1] * 2)
        else:
            sizes = sorted({int(part) for part in text.split(",")})
        if min(sizes) < 1 or max(sizes) > _LARGEST or (".." in text and last < first):
            raise ValueError
    except ValueError:
        raise EmulatorError(
            f"--sizes {text} is not valid; write numbers of IPUs up to {_LARGEST}: 16..65536 (each twice "
            "the one before) or 16,64,256"
        ) from None
    return sizes


def at_sizes(job: Job, profile: Profile | None, sizes: Sequence[int], *, strong: bool) -> list[ScalePoint]:
    """``job`` on each of ``sizes`` IPUs; with ``strong`` its global batch is that of the smallest size."""
    if len(sizes) < 2:
        raise EmulatorError(f"--sizes {sizes[0]} is one size; give two at least, such as {sizes[0]}..{4 * sizes[0]}")
    wrong = [size for size in sizes if size % job.ipus or (size // job.ipus) % job.bn_span]
    if wrong:
        raise EmulatorError(
            f"{wrong[0]} IPUs cannot be divided into replicas of {job.ipus} IPUs in groups of {job.bn_span}; use "
            f"multiples of {job.ipus * job.bn_span}"
        )
    predictions = []
    for size in sizes:
        accumulation = job.accumulation * sizes[0] // size if strong else job.accumulation
        if strong and (accumulation * size != job.accumulation * sizes[0]):
            break
        system = smallest_pod(size, job.system)
        sized = replace(job, system=system, replicas=size // job.ipus, accumulation=accumulation, hosts=0)
        predictions.append(predict(sized, profile))
    if len(predictions) < 2:
        raise EmulatorError(
            f"an accumulation of {job.accumulation} on {sizes[0]} IPUs cannot be divided further; start with more"
        )
    return scale_points(predictions)


def scale_points(predictions: Sequence[Prediction]) -> list[ScalePoint]:
    """The ideal line and the laws, from the first prediction on."""
    first = predictions[0]
    constant = 1 - (first.terms["compute"] + first.terms["ramps"]) / first.step
    points = []
    for prediction in predictions:
        size = prediction.job.total_ipus
        ratio = size / first.job.total_ipus
        laws = (law(constant, ratio) * first.throughput for law in (amdahl, gustafson))
        points.append(ScalePoint(size, prediction, first.throughput * ratio, *laws))
    return points
