"""Search: all configurations of a job on a system, or all combinations of given values, computed as arrays.

A search goes through IPUs per replica, replicas, micro-batch, accumulation, recomputation, sharded states and states
in Streaming Memory; configurations that do not fit the memory are excluded. Configurations whose difference is within
the prediction error are tied: the rank of one is 1 + the number of those that are better by more than that error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware.rates import NOMINAL
from ipu_emu.predict import memory
from ipu_emu.predict.calibration.profile import Profile
from ipu_emu.predict.job import Job, smallest_pod
from ipu_emu.predict.memory import Shape
from ipu_emu.predict.model import StepModel, placed
from popdist_py.messages.suggestion import did_you_mean

Values = NDArray[Any]

COLUMNS = ("ipus", "replicas", "batch", "accumulation", "recompute", "shared", "off_chip")
_ARRAYS = COLUMNS[1:]
#: The predicted numbers of each row.
_NUMBERS = ("throughput", "global_batch", "low", "high")
_NINETY = 1.645
_IPUS = (1, 2, 4, 8, 16)
_MOST_BATCH, _MOST, _MOST_SAMPLES = 256, 5_000_000, 10**9


@dataclass(frozen=True)
class Configurations:
    """``columns`` by the names of ``COLUMNS``, and predictions for each row; ``spread`` is that of a logarithm."""

    columns: Mapping[str, Values]
    throughput: Values
    global_batch: Values
    low: Values
    limit: float
    high: Values
    spread: float
    examined: int

    def __len__(self) -> int:
        return len(self.throughput)

    @property
    def verdicts(self) -> Values:
        verdicts: Values = memory.verdict(self.low, self.high, self.limit)
        return verdicts

    def only(self, rows: Values) -> Configurations:
        """Return the rows with these indices, or those that a mask selects."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, **{name: getattr(self, name)[rows] for name in _NUMBERS})

    def ranked(self) -> Configurations:
        """Sort by throughput, fastest first, then by global batch, smallest first."""
        return self.only(np.lexsort((self.global_batch, -self.throughput)))

    @property
    def ranks(self) -> Values:
        """The rank of each row of a ranked table; ties share one."""
        width = exp(_NINETY * self.spread)
        better = np.searchsorted(-self.throughput, -self.throughput * width, side="left")
        return 1 + better

    def pareto(self) -> Configurations:
        """Return the Pareto front of throughput and global batch: no other row is faster with at most their batch."""
        order = np.lexsort((-self.throughput, self.global_batch))
        best = np.maximum.accumulate(self.throughput[order])
        leads = np.concatenate([[True], best[1:] > best[:-1]]) if len(order) else np.zeros(0, bool)
        return self.only(order[leads])

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The first rows as plain data."""
        verdicts, ranks = self.verdicts, self.ranks
        return [
            {name: self.columns[name][row].item() for name in self.columns}
            | {
                "rank": int(ranks[row]),
                "samples_per_second": float(self.throughput[row]),
                "global_batch_samples": float(self.global_batch[row]),
                "low_bytes": float(self.low[row]),
                "high_bytes": float(self.high[row]),
                "verdict": str(verdicts[row]),
            }
            for row in range(min(count, len(self)))
        ]


def search(job: Job, profile: Profile | None, *, global_batch: float | None = None) -> Configurations:
    """All configurations of ``job`` on its system that may fit; raise EmulatorError if there is none."""
    if global_batch is not None and not 0 < global_batch <= _MOST_SAMPLES:
        raise EmulatorError(f"a global batch of {global_batch:g} is not possible; use 1 to {_MOST_SAMPLES:,}")
    evaluated = [
        _evaluated(model, profile, grid)
        for ipus in _IPUS
        if ipus <= job.system.ipus
        for model in _models(job, ipus)
        for grid in [_grid(model.job, global_batch)]
        if len(grid["replicas"])
    ]
    if not evaluated:
        raise EmulatorError(
            f"no micro-batch and accumulation make a global batch of {global_batch:g} on {job.system.name}; "
            f"it is a product of whole numbers: micro-batch (at most {_MOST_BATCH}), accumulation, replicas"
            + (f", and packing {job.packing:g}" if job.packing > 1 else "")
        )
    every = _joined(evaluated)
    fits = every.only(every.low <= every.limit)
    if not len(fits):
        raise EmulatorError(
            f"no configuration of {job.model} fits {job.system.name}; try a smaller length, a larger replica, or "
            "--optimiser with fewer states"
        )
    return _best_placements(fits).ranked()


def _models(job: Job, ipus: int) -> list[StepModel]:
    """The job on ``ipus`` IPUs per replica, placed by time and by memory."""
    if job.bn_span * ipus > job.system.ipus:
        return []
    base = replace(_on_its_hosts(job), ipus=ipus, replicas=job.bn_span, layers=(), embedding_ipu=0)
    base = replace(base, off_chip=(), shared=())
    models = [placed(replace(base, batch=batch, recompute=True)) for batch in ((1, 16) if ipus > 1 else (1,))]
    unique = {model.work.placement: model for model in models}
    return [replace(model, job=base) for model in unique.values()]


def _on_its_hosts(job: Job) -> Job:
    """Return ``job`` for any number of replicas, on the hosts that these need and without a number of instances."""
    return replace(job, hosts=job.host_count, instances=0) if job.instances else job


def _grid(job: Job, global_batch: float | None) -> dict[str, Values]:
    """Every value of every column, as arrays of one length."""
    counts = [1 << power for power in range(job.system.ipus.bit_length())]
    replicas = np.array([n for n in counts if n * job.ipus <= job.system.ipus and n % job.bn_span == 0], int)
    batch = np.arange(1, _MOST_BATCH + 1)
    states = bool(memory.state_bytes(job)) and job.training
    flags = [np.array([False, True])] * 3 if job.training else [np.array([False])] * 3
    if not states:
        flags[1] = flags[2] = np.array([False])
    if global_batch is None:
        some = sorted({round(2 ** (power / 2)) for power in range(27)})
        axes = list(np.meshgrid(replicas, batch, np.array(some), *flags, indexing="ij"))
    else:
        axes = list(np.meshgrid(replicas, batch, *flags, indexing="ij"))
        exact = global_batch / (axes[0] * axes[1] * job.packing)
        axes.insert(2, np.rint(exact).astype(int))
        axes = [axis[(np.abs(exact - axes[2]) < 1e-9 * exact) & (axes[2] >= 1)] for axis in axes]
    flat = {name: axis.ravel() for name, axis in zip(_ARRAYS, axes, strict=True)}
    keep = ~(flat["shared"] & (flat["replicas"] == 1))
    return {name: values[keep] for name, values in flat.items()}


def _evaluated(model: StepModel, profile: Profile | None, grid: Mapping[str, Values]) -> Configurations:
    """Throughput and memory of every row; memory first, terms only of rows that may fit."""
    job = model.job
    shape = Shape(**{name: grid[name] for name in _ARRAYS})
    limit = float(job.system.generation.sram)
    low, high = np.zeros(len(shape.replicas)), np.zeros(len(shape.replicas))
    for ipu in range(job.ipus):
        _, least, most = model.memory_of(ipu, shape)
        low, high = np.maximum(low, least), np.maximum(high, most)
    rates = NOMINAL if profile is None else profile.rates(job.release)
    step: Values = sum(model.terms(rates, shape).values())
    samples = shape.replicas * shape.batch * shape.accumulation * job.packing
    columns = {"ipus": np.full(len(step), job.ipus)} | {name: grid[name] for name in _ARRAYS}
    spread = 0.0 if profile is None else profile.spread
    return Configurations(columns, samples / step, samples, low, limit, high, spread, len(step))


def _joined(parts: Sequence[Configurations]) -> Configurations:
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS}
    numbers: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS}
    return replace(parts[0], columns=columns, examined=sum(part.examined for part in parts), **numbers)


def _best_placements(configurations: Configurations) -> Configurations:
    """The fastest of each group of configurations that differ only in placement."""
    keys = np.stack([configurations.columns[name].astype(np.int64) for name in COLUMNS])
    order = np.lexsort((-configurations.throughput, *keys))
    ordered = keys[:, order]
    new = np.concatenate([[True], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)])
    return configurations.only(order[new])


# ---------------------------------------------------------------- sweeps

_MOST_VALUES = 10**7


def sweep_values(text: str, names: Sequence[str] = COLUMNS) -> tuple[str, list[int]]:
    """``batch=1..8``, ``replicas=1,2,4`` or ``replicas=16..256x2`` as a name and its values."""
    name, _, ranges = text.partition("=")
    try:
        if name not in names or not ranges:
            raise ValueError
        values: list[int] = []
        for part in ranges.split(","):
            ends, _, factor = part.partition("x")
            first, _, last = ends.partition("..")
            if factor and int(factor) < 2:
                raise ValueError
            values += _range(int(first), int(last or first), int(factor or 1))
            if len(values) > _MOST_VALUES:
                raise ValueError
        if not values or min(values) < (0 if name in COLUMNS[4:] else 1):
            raise ValueError
        if name in COLUMNS[4:] and max(values) > 1:
            raise ValueError
    except ValueError:
        raise EmulatorError(
            f"--sweep {text} is not valid; write one of {', '.join(names)} and numbers: batch=1..8, "
            "replicas=1,2,4, replicas=16..256x2 (each twice the one before), recompute=0,1"
            + ("" if name in names else did_you_mean(name, names))
        ) from None
    return name, list(dict.fromkeys(values))


def _range(first: int, last: int, factor: int) -> list[int]:
    if last < first or (factor > 1 and first < 1) or last - first > _MOST_VALUES:
        raise ValueError
    if factor == 1:
        return list(range(first, last + 1))
    values = [first]
    while values[-1] * factor <= last:
        values.append(values[-1] * factor)
    return values


def sweep(job: Job, profile: Profile | None, axis_values: Mapping[str, Sequence[int]]) -> Configurations:
    """All combinations of ``axis_values``, in their order; the others are those of ``job``."""
    own = {
        "ipus": job.ipus,
        "replicas": job.replicas,
        "batch": job.batch,
        "accumulation": job.accumulation,
        "recompute": job.recompute,
        "shared": "states" in job.shared,
        "off_chip": "states" in job.off_chip,
    }
    axes = {name: list(axis_values.get(name, [own[name]])) for name in COLUMNS}
    total = prod(map(len, axes.values()))
    if total > _MOST:
        raise EmulatorError(f"--sweep asks for {total:,} configurations; use at most {_MOST:,}")
    largest = max(axes["replicas"]) * max(axes["ipus"])
    system = job.system if largest <= job.system.ipus else smallest_pod(largest, job.system)
    wrong = [count for count in axes["replicas"] if count % job.bn_span]
    if wrong:
        raise EmulatorError(f"--bn-span {job.bn_span} does not divide {wrong[0]} replicas; leave that number out")
    grid = dict(zip(_ARRAYS, (axis.ravel() for axis in _mesh(axes)), strict=True))
    parts = []
    for ipus in axes["ipus"]:
        most, least = (
            replace(
                _on_its_hosts(job),
                system=system,
                ipus=ipus,
                replicas=of_replicas(axes["replicas"]),
                batch=of_batch(axes["batch"]),
                accumulation=max(axes["accumulation"]),
                recompute=of_flags(axes["recompute"]),
                layers=job.layers if ipus == job.ipus else (),
                embedding_ipu=min(job.embedding_ipu, ipus - 1),
                shared=_with_states(job.shared, of_flags(axes["shared"])),
                off_chip=_with_states(job.off_chip, of_flags(axes["off_chip"])),
            )
            for of_replicas, of_batch, of_flags in ((min, max, all), (max, min, any))
        )
        parts.append(_placed_twice(most, least, profile, grid))
    return _joined(parts)


def _with_states(kinds: tuple[str, ...], states: bool) -> tuple[str, ...]:
    return (*(kind for kind in kinds if kind != "states"), *["states"] * states)


def _placed_twice(most: Job, least: Job, profile: Profile | None, grid: Mapping[str, Values]) -> Configurations:
    """Every row with the placement of the job that needs ``least`` memory where that fits, else of the other."""
    tight, loose = placed(most), placed(least)
    rows = _evaluated(tight, profile, grid)
    if tight.work.placement == loose.work.placement:
        return rows
    other = _evaluated(replace(loose, job=most), profile, grid)
    fits = other.verdicts == "fits"
    throughput, low, high = (
        np.where(fits, getattr(other, name), getattr(rows, name)) for name in ("throughput", "low", "high")
    )
    return replace(rows, throughput=throughput, low=low, high=high)


def _mesh(axes: Mapping[str, Sequence[Any]]) -> list[Values]:
    kinds = (int, int, int, bool, bool, bool)
    arrays: list[Values] = [np.array(axes[name], kind) for name, kind in zip(_ARRAYS, kinds, strict=True)]
    return list(np.meshgrid(*arrays, indexing="ij"))
