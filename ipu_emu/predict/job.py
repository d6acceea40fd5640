"""Job: the input of a prediction: a network, the Pod and its replicas, and the configuration of the training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from gcl.drawing.units import counted
from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.compiler.placement.graph_balance import MicroBatchWork
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.hardware.position import IPUS_PER_MACHINE
from ipu_emu.predict.networks import BlockKind, Network, network
from ipu_emu.program.schedules import SCHEDULES
from popdist_py.messages.suggestion import did_you_mean

#: Bytes of an element, by PopART's names.
DTYPES = {"float16": 2, "float": 4, "uint8": 1, "int32": 4, "float8": 1}
#: SDK releases that calibrations distinguish, in order; the last one is the default.
RELEASES = ("2.1", "2.3")
_SIZES = (1, 2, 4, 8, 16)
#: The largest number in a job, and the IPUs of the largest Pod.
_MOST, _LARGEST = 10**9, 65_536
_PLACES = ("weights", "states", "activations", "accumulators")


@dataclass(frozen=True)
class Job:
    """See ``ipu-emu predict --help`` for the fields. ``packing``: samples in a sequence; a batch counts sequences.

    ``layers``: (attention, feed-forward) parts of layers on each IPU. ``bn_span``: replicas that share batch
    statistics. ``hosts`` 0: as many as the system may have. ``instances`` 0: at least one on each
    host; N instances use at most N hosts. Raises EmulatorError naming an invalid field.
    """

    model: str
    system: System
    replicas: int = 1
    ipus: int = 1
    batch: int = 1
    accumulation: int = 1
    training: bool = True
    dtype: str = "float16"
    optimiser: str = "sgd"
    recompute: bool = False
    schedule: str = "grouped"
    off_chip: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    length: int | None = None
    vocabulary: int | None = None
    masked: int | None = None
    size: int | None = None
    packing: float = 1.0
    layers: tuple[tuple[int, int], ...] = ()
    embedding_ipu: int = 0
    input_dtype: str = ""
    overlap_io: bool = True
    bn_span: int = 1
    stash_dtype: str = "float16"
    merge_collectives: bool = True
    hosts: int = 0
    instances: int = 0
    host_rate: float = 0.0
    release: str = RELEASES[-1]
    samples: float = 0.0
    epochs: float = 0.0
    own_network: Network | None = None

    def __post_init__(self) -> None:
        faults = [fault for fault in self._faults() if fault]
        if faults:
            raise EmulatorError("; ".join(faults))

    def _faults(self) -> list[str]:
        counts = ("replicas", "batch", "accumulation", "bn_span", "packing")
        faults = [
            f"{name} {getattr(self, name)} is not possible; use at least 1"
            if not getattr(self, name) > 1
            else f"{name} {getattr(self, name):,} is not possible; use at most {_MOST:,}"
            for name in counts
            if not 1 <= getattr(self, name) <= _MOST
        ]
        if self.ipus not in _SIZES:
            faults.append(f"{self.ipus} IPUs per replica are not possible; use {', '.join(map(str, _SIZES))}")
        elif self.replicas * self.ipus > self.system.ipus:
            faults.append(
                f"{counted(self.replicas, 'replica')} of {counted(self.ipus, 'IPU')} requested; "
                f"{self.system.name} has {self.system.ipus} IPUs; use fewer replicas or a larger system"
            )
        tables = {
            "optimiser": (self.optimiser, tuple(OPTIMISERS)),
            "schedule": (self.schedule, tuple(SCHEDULES)),
            "dtype": (self.dtype, ("float16", "float")),
            "stash dtype": (self.stash_dtype, ("float16", "float", "float8")),
            "input dtype": (self.input_dtype or "uint8", tuple(DTYPES)),
        }
        faults.append(_release_fault(self.release))
        for name, (value, known) in tables.items():
            if value not in known:
                faults.append(f"{name} '{value}' is unknown; use {', '.join(known)}{did_you_mean(value, known)}")
        for name, values, known in (("off chip", self.off_chip, _PLACES), ("shared", self.shared, _PLACES[:2])):
            faults += [
                f"'{value}' cannot be {name}; use {', '.join(known)}{did_you_mean(value, known)}"
                for value in values
                if value not in known
            ]
        if self.bn_span >= 1 and self.replicas % self.bn_span:
            faults.append(
                f"--bn-span {self.bn_span} does not divide {counted(self.replicas, 'replica')}; use a divisor"
            )
        if self.ipus in _SIZES and not 0 <= self.embedding_ipu < self.ipus:
            faults.append(f"--embedding-ipu {self.embedding_ipu}: a replica has IPUs 0 to {self.ipus - 1}")
        if self.layers and len(self.layers) != self.ipus:
            faults.append(
                f"layers are given for {counted(len(self.layers), 'IPU')}; a replica has {self.ipus}: give a number "
                "for each"
            )
        if self.instances < 0 or (self.instances and self.replicas % self.instances):
            faults.append(
                f"--instances {self.instances} does not divide {counted(self.replicas, 'replica')}; use a divisor"
            )
        machines = -(-self.system.ipus // IPUS_PER_MACHINE)
        if machines < self.hosts < inf:
            faults.append(
                f"--hosts {self.hosts:,}: {self.system.name} has {counted(machines, 'IPU-Machine')};"
                f" use at most {machines}"
            )
        numbers = (self.hosts, self.host_rate, self.samples, self.epochs)
        if not all(0 <= number < inf for number in numbers):
            faults.append("hosts, rates, samples and epochs must be finite and not negative")
        elif bool(self.samples) != bool(self.epochs):
            faults.append("samples of an epoch and epochs belong together; give both for the time to train")
        return faults

    @property
    def takes_turns(self) -> bool:
        """Whether the IPUs of a replica never work at the same time."""
        return SCHEDULES[self.schedule].takes_turns

    @cached_property
    def network(self) -> Network:
        """The network, with the sizes that the job sets."""
        sizes = {"length": self.length, "vocabulary": self.vocabulary, "masked": self.masked, "size": self.size}
        wrong = [f"--{name}" for name, value in sizes.items() if value is not None]
        if self.own_network and wrong:
            raise EmulatorError(f"{self.model} is a file with sizes of its own; leave out {' and '.join(wrong)}")
        chosen = self.own_network or network(self.model, **sizes)
        faults = list(_unsuitable(self, chosen))
        if faults:
            raise EmulatorError("; ".join(faults))
        return chosen

    @property
    def work(self) -> MicroBatchWork:
        """What is done with a micro-batch."""
        return MicroBatchWork.of(training=self.training, recomputes=self.recompute)

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @property
    def global_batch(self) -> float:
        """Samples per weight update, over all replicas."""
        return self.batch * self.accumulation * self.replicas * self.packing

    @property
    def total_ipus(self) -> int:
        return self.replicas * self.ipus

    @property
    def host_count(self) -> int:
        """Hosts that instances run on."""
        hosts = self.hosts or max(1, self.system.most_hosts)
        return min(hosts, self.instances) if self.instances else hosts

    def for_global_batch(self, samples: float) -> Job:
        """The same job with the accumulation that makes a global batch of ``samples``."""
        if not 0 < samples <= _MOST:
            raise EmulatorError(f"a global batch of {samples:g} is not possible; use more than 0, at most {_MOST:,}")
        unit = self.batch * self.replicas * self.packing
        count = round(samples / unit)
        if count < 1 or abs(count * unit - samples) > 1e-6 * samples:
            near = max(1, count) * unit
            raise EmulatorError(
                f"a global batch of {samples:g} is not a multiple of micro-batch x replicas x packing = {unit:g}; "
                f"the nearest is {near:g}"
            )
        return replace(self, accumulation=count)

    @property
    def title(self) -> str:
        what = f"training with {self.optimiser}" if self.training else "inference"
        parts = [
            self.model,
            what,
            f"micro-batches of {self.batch}",
            f"{self.accumulation} accumulated" if self.accumulation > 1 else "",
            counted(self.replicas, "replica"),
            f"{self.ipus} IPUs each" if self.ipus > 1 else "",
            self.system.name,
        ]
        return ", ".join(part for part in parts if part)


def _unsuitable(job: Job, network: Network) -> Iterator[str]:
    """Messages for fields of ``job`` that ``network`` cannot have."""
    if job.bn_span > 1 and not any(block.norms for block in network.blocks):
        yield f"{job.model} has no batch normalisation; leave out --bn-span"
    if job.own_network is None and job.packing > 1 and network.samples != "sequences":
        yield f"--packing {job.packing:g}: a sample of {job.model} is not a sequence; leave it out"
    if job.own_network is None and network.input_dtype == "int32" and job.input_dtype not in ("", "int32"):
        yield f"--input-dtype {job.input_dtype}: the input of {job.model} is word numbers, in int32; leave it out"


def without_effect(job: Job) -> list[str]:
    """A sentence for each option of ``job`` that is not the default, and does not change its prediction."""
    return [f"{option} has no effect: {why}" for option in _given(job) for why in [_no_effect(job, option)] if why]


def _given(job: Job) -> list[str]:
    """The options of ``job``, of those that may be without effect, that are not the default."""
    own = {
        "--schedule": job.schedule != Job.schedule,
        "--optimiser": job.optimiser != Job.optimiser,
        "--recompute": job.recompute,
        "--embedding-ipu": job.embedding_ipu > 0,
        "--bn-span": job.bn_span > 1,
        "--stash-dtype": job.stash_dtype != Job.stash_dtype,
        "--no-merge-collectives": not job.merge_collectives,
        "--hosts": job.hosts > 0,
    }
    kinds = [*(f"--off-chip {kind}" for kind in job.off_chip), *(f"--shared {kind}" for kind in job.shared)]
    return [name for name, is_set in own.items() if is_set] + kinds


#: Options that change inference.
_INFERENCE = ("--schedule", "--embedding-ipu", "--hosts", "--off-chip weights")


def _no_effect(job: Job, option: str) -> str:
    """Why ``option`` does not change the prediction of ``job``; "" if it does."""
    places_table = any(block.kind is BlockKind.EMBEDDING or block.tied for block in job.network.blocks)
    between = option == "--no-merge-collectives" or option.startswith("--shared")
    rules = (
        (not job.training and option not in _INFERENCE, "inference has no backward pass"),
        (job.ipus == 1 and option == "--schedule", "a single IPU has no pipeline"),
        (not places_table and option == "--embedding-ipu", f"{job.model} has no embedding"),
        (not OPTIMISERS[job.optimiser].states and option == "--off-chip states", f"{job.optimiser} has no states"),
        (job.accumulation == 1 and option == "--off-chip accumulators", "a single micro-batch needs none"),
        (job.replicas == 1 and between, "there is one replica"),
        (
            job.hosts > job.replicas and option == "--hosts",
            f"only {counted(job.replicas, 'host')} can have a replica",
        ),
    )
    return next((why for applies, why in rules if applies), "")


_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?")


def calibrated_release(release: str) -> str:
    """The release whose factors apply to ``release``: the last of RELEASES that is not later, else the first.

    Raises EmulatorError if it is not the number of a release.
    """
    fault = _release_fault(release)
    if fault:
        raise EmulatorError(fault)
    wanted = tuple(map(int, release.split(".")))
    return max((known for known in RELEASES if tuple(map(int, known.split("."))) <= wanted), default=RELEASES[0])


def _release_fault(release: str) -> str:
    if _VERSION.fullmatch(release):
        return ""
    return f"release '{release}' is not a number of an SDK; use one such as {RELEASES[-1]}"


def smallest_pod(ipus: int, like: System) -> System:
    """The smallest Pod of the kind of ``like``, at least a Pod4, with ``ipus`` IPUs; EmulatorError above 65,536."""
    if ipus > _LARGEST:
        raise EmulatorError(f"{ipus:,} IPUs requested; the largest Pod has {_LARGEST:,}; use fewer replicas")
    return System.pod(max(4, 1 << (ipus - 1).bit_length()), like.generation)
