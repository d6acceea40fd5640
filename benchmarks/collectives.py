"""Collectives against MPI and gloo, side by side in one run, every result checked before it is timed.

The processes of every contender start once and then sleep; for each case they take turns, in alternating order, so
that all meet the same disturbance. One sample is K calls back to back (about 4 ms) between two barriers, from the
earliest start to the latest end; a round takes each contender's best sample; the ratio is the median over rounds of
fastest peer / ours: above 1 we are faster. Times are medians over the rounds.

    all-reduce            tensors that the communicator allocated, in place
    all-reduce private    numpy arrays of the caller, in place
    reduce-scatter        size is the whole input of a rank; tensors that the communicator allocated
    all-gather            size is the whole result; into private arrays
    all-gather shared     into one tensor for all ranks of the host, in which each has made its shard in place;
                          the peers, which do not support this, as above
    all-gather to shared  the same from shards elsewhere, which are copied
    limit                 our all-reduce against what the memory can do: in an all-reduce of S bytes each of P ranks
                          must read S bytes (its slice of P tensors) and write S bytes (where it read them). So do
                          "update" (numpy negates S bytes in place) and "copy" (numpy copies S bytes), on all ranks at
                          once. The ratio is the share of the limit that is reached
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from support.ending import clean_up_when_told, terminate

ROOT = Path(__file__).resolve().parent.parent
KIB = 1024
MIB = KIB**2
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
LARGE = [256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
#: (collective, dtype) -> sizes of a full run, of a quick one.
CASES: dict[tuple[str, str], tuple[list[int], list[int]]] = {
    ("all-reduce", "float32"): ([*SIZES, 256 * MIB], [KIB, 64 * KIB, 16 * MIB]),
    ("all-reduce", "float16"): (SIZES[3:], [64 * KIB, 16 * MIB]),
    ("all-reduce private", "float32"): (LARGE, [MIB]),
    ("reduce-scatter", "float32"): (LARGE, [MIB]),
    ("all-gather", "float32"): (LARGE, [MIB]),
    ("all-gather shared", "float32"): (LARGE, [MIB]),
    ("all-gather to shared", "float32"): (LARGE, []),
    ("limit", "float32"): ([64 * MIB], []),
}
SAMPLE_SECONDS = 4e-3
AS_ROOT = {f"{family}_ALLOW_RUN_AS_ROOT{suffix}": "1" for family in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")}


@dataclass(frozen=True)
class Case:
    """One collective: ``processes`` ranks with one replica each, ``nbytes`` per rank."""

    what: str
    dtype: str
    processes: int
    nbytes: int

    def __str__(self) -> str:
        size = f"{self.nbytes // KIB} KiB" if self.nbytes < KIB**2 else f"{self.nbytes // KIB**2} MiB"
        return f"{self.what} {self.dtype} P={self.processes} {size}"

    @property
    def count(self) -> int:
        return self.nbytes // np.dtype(self.dtype).itemsize


# ------------------------------------------------------------------------------------------------ contenders
#
# Each returns (rank, barrier, prepare); prepare(case) returns, per variant, (input, output, call).

Prepared = tuple[np.ndarray, np.ndarray, Callable[[], Any]]
Contender = tuple[int, Callable[[], Any], Callable[[Case], list[Prepared]]]


def ours(rank: int, size: int) -> Contender:
    """gcl over shared memory, tensors allocated by the communicator, in place."""
    names = ("NUM_TOTAL_REPLICAS", "NUM_LOCAL_REPLICAS", "REPLICA_INDEX_OFFSET", "LOCAL_INSTANCE_INDEX")
    os.environ.update({f"POPDIST_{n}": str(v) for n, v in zip(names, (size, 1, rank, rank), strict=True)})
    import gcl
    import popdist_py

    popdist_py.init()
    communicator = gcl.connect(global_offset=rank, global_replicas=size)

    def prepare(case: Case) -> list[Prepared]:
        x = communicator.empty(case.count, case.dtype)
        shard = communicator.empty(case.count // size, case.dtype)
        if case.what == "all-reduce":
            return [(x, x, lambda: communicator.all_reduce(x, out=x))]
        if case.what == "all-reduce private":
            own = np.zeros_like(x)
            return [(own, own, lambda: communicator.all_reduce(own, out=own))]
        if case.what == "reduce-scatter":
            return [(x, shard, lambda: communicator.reduce_scatter(x, out=shard))]
        if case.what == "limit":
            own, other = np.zeros_like(x), np.zeros_like(x)
            calls = (lambda: communicator.all_reduce(x, out=x), lambda: np.copyto(other, own), lambda: _update(own))
            return [(tensor, tensor, call) for tensor, call in zip((x, own, own), calls, strict=True)]
        shape = (size, case.count // size)
        out = np.zeros((1, *shape), case.dtype) if case.what == "all-gather" else communicator.shared(shape)
        if case.what == "all-gather shared":
            shard = out[rank : rank + 1]
        return [(shard, out, lambda: communicator.all_gather(shard, out=out))]

    return rank, communicator.barrier, prepare


def _update(x: np.ndarray) -> None:
    np.negative(x, out=x)


def mpi(rank: int, size: int) -> Contender:
    """MPI_Allreduce with default settings, from one buffer to another and in place."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def prepare(case: Case) -> list[Prepared]:
        x, out = np.zeros(case.count, case.dtype), np.zeros(case.count, case.dtype)
        shard = np.zeros(case.count // size, case.dtype)
        if case.what.startswith("all-reduce"):
            return [(x, out, lambda: world.Allreduce(x, out)), (x, x, lambda: world.Allreduce(MPI.IN_PLACE, x))]
        if case.what == "limit":
            return []
        if case.what == "reduce-scatter":
            return [(x, shard, lambda: world.Reduce_scatter_block(x, shard))]
        return [(shard, out, lambda: world.Allgather(shard, out))]

    return world.rank, world.Barrier, prepare


def gloo(rank: int, size: int) -> Contender:
    """torch.distributed.all_reduce with the gloo back end, in place."""
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size, init_method=os.environ["GLOO_INIT"])

    def prepare(case: Case) -> list[Prepared]:
        if not case.what.startswith("all-reduce"):
            return []  # gloo has no reduce-scatter, and gathers into lists
        x = np.zeros(case.count, case.dtype)
        tensor = torch.from_numpy(x)
        return [(x, x, lambda: distributed.all_reduce(tensor))]

    return rank, distributed.barrier, prepare


CONTENDERS: dict[str, Callable[[int, int], Contender]] = {"ours": ours, "mpich": mpi, "openmpi": mpi, "gloo": gloo}
#: Contender -> names of the variants that it prepares, of which there may be fewer.
VARIANTS = {
    "ours": ["ours", "copy", "update"],
    "mpich": ["mpich", "mpich in place"],
    "openmpi": ["openmpi", "openmpi in place"],
}


def launchers() -> dict[str, tuple[Path, dict[str, str]]]:
    """Contender -> (mpirun, environment), for the contenders that are installed."""
    mpich = (Path(sys.prefix, "bin/mpirun"), {})
    open_prefix = ROOT / ".venv-openmpi"
    open_mpi = (
        open_prefix / "bin/mpirun",
        {"MPI4PY_LIBMPI": str(open_prefix / "lib/libmpi.so.40"), "OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}
        | AS_ROOT,
    )
    contenders = {"ours": mpich, "mpich": mpich}
    if open_mpi[0].exists():
        contenders["openmpi"] = open_mpi
    if importlib.util.find_spec("torch"):
        contenders["gloo"] = mpich
    return contenders


# ------------------------------------------------------------------------------------------- inside the ranks


def worker(name: str, address: str) -> None:
    """Serve the driver: prepare and check a case, then take samples; sleep in between."""
    rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ.get("PMI_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    stream = connection.makefile("rw")
    rank, barrier, prepare = CONTENDERS[name](rank, size)
    print(json.dumps(rank), file=stream, flush=True)
    prepared: list[Prepared] = []
    for line in stream:
        order = json.loads(line)
        if "case" in order:
            prepared = prepare(Case(**order["case"]))
            for variant in prepared:
                _check(variant, barrier, rank, size, order["case"]["what"])
            answer: Any = len(prepared)
        else:
            call = prepared[order["variant"]][2]
            answer = [_sample(call, barrier, order["calls"]) for _ in range(order["samples"])]
        print(json.dumps(answer), file=stream, flush=True)


def _check(variant: Prepared, barrier: Callable[[], Any], rank: int, size: int, what: str) -> None:
    """Run once on exact values, then zero the input, so that repeated sums do not overflow."""
    x, out, call = variant
    x[...] = rank + 1
    call()
    if what == "limit":
        return
    if what.startswith("all-gather"):
        expected: Any = np.repeat(np.arange(1, size + 1), out.size // size).reshape(out.shape)
    else:
        expected = size * (size + 1) // 2
    if not (out == expected).all():
        raise SystemExit(f"{what} on rank {rank}: expected {expected}, got {out}")
    barrier()  # the result may be shared with other ranks
    x[...] = 0


def _sample(call: Callable[[], Any], barrier: Callable[[], Any], calls: int) -> tuple[float, float]:
    barrier()
    start = perf_counter()
    for _ in range(calls):
        call()
    end = perf_counter()
    barrier()
    return start, end


# --------------------------------------------------------------------------------------------------- the driver


class Team:
    """The running processes of one contender."""

    def __init__(self, name: str, processes: int, folder: Path) -> None:
        launcher, environment = launchers()[name]
        address = str(folder / f"{name.replace(' ', '-')}-{processes}")
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen(processes)
        environment = {"OMP_NUM_THREADS": "1", "GLOO_INIT": f"file://{folder}/store-{processes}"} | environment
        environment["PYTHONPATH"] = str(ROOT)
        self._process = self.start(name, launcher, processes, address, environment)
        server.settimeout(120)
        try:
            connections = [server.accept()[0] for _ in range(processes)]
            self._streams = [connection.makefile("rw") for connection in connections]
            for connection in connections:
                connection.close()  # the stream keeps it open
            self._answers()
        except BaseException:
            terminate(self._process)
            raise
        self._all_names = VARIANTS.get(name, [name])
        self.names: list[str] = []
        self.calls: list[int] = []

    def start(
        self, name: str, launcher: Path, processes: int, address: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the processes, which answer at ``address``."""
        flags = ["--oversubscribe", "--bind-to", "none"] if "openmpi" in name else []
        if flags and processes > (os.cpu_count() or 1):
            flags += ["--mca", "mpi_yield_when_idle", "1"]
        command = [launcher, "-n", str(processes), *flags, sys.executable, __file__, "--worker", name, address]
        return subprocess.Popen([str(c) for c in command], env=os.environ | environment)

    def prepare(self, case: Case) -> None:
        """Set ``case`` up, check its results, and find how many calls of each variant fill a sample."""
        variants = self._order({"case": asdict(case)})[0]
        self.names, self.calls = self._all_names[:variants], [1] * variants
        for variant in range(len(self.names)):
            self.calls[variant] = 1
            once = min(self.sample(variant, 3))
            self.calls[variant] = max(1, min(2000, int(SAMPLE_SECONDS / once)))

    def sample(self, variant: int, samples: int) -> list[float]:
        """Seconds per call of each sample."""
        calls = self.calls[variant]
        ranks = self._order({"variant": variant, "calls": calls, "samples": samples})
        return [
            (max(end for _, end in spans) - min(start for start, _ in spans)) / calls
            for spans in zip(*ranks, strict=True)
        ]

    def stop(self) -> None:
        for stream in self._streams:
            stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            terminate(self._process)

    def _order(self, order: dict[str, Any]) -> list[Any]:
        for stream in self._streams:
            print(json.dumps(order), file=stream, flush=True)
        return self._answers()

    def _answers(self) -> list[Any]:
        lines = [stream.readline() for stream in self._streams]
        if not all(lines):
            raise SystemExit("a contender ended early; its message is above")
        return [json.loads(line) for line in lines]


@contextmanager
def teams(processes: int) -> Iterator[dict[str, Team]]:
    """All contenders, started."""
    running: dict[str, Team] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in launchers():
                running[name] = Team(name, processes, Path(folder))
            yield running
        finally:
            for team in running.values():
                team.stop()


def measure(case: Case, contenders: dict[str, Team], *, rounds: int, budget: float) -> dict[str, Any]:
    """One row: medians over the rounds of each round's best sample, and the median ratios.

    "own MPI" is the ratio to the MPI library on which ours runs.
    """
    for team in contenders.values():
        team.prepare(case)
    order = [(name, team, i) for team in contenders.values() for i, name in enumerate(team.names)]
    best: dict[str, list[float]] = {name: [] for name, _, _ in order}
    for _ in range(rounds):
        order.reverse()
        for name, team, variant in order:
            cost = max(SAMPLE_SECONDS, team.calls[variant] * (best[name][-1] if best[name] else 0))
            best[name].append(min(team.sample(variant, max(2, min(40, int(budget / cost))))))
    peers = {name: times for name, times in best.items() if name != "ours"}
    own = {name: times for name, times in peers.items() if name.startswith("mpich")}
    return {
        "case": str(case),
        "unit": "us",
        "ours": statistics.median(best["ours"]) * 1e6,
        "peers": {name: statistics.median(times) * 1e6 for name, times in peers.items()},
        "ratio": _ratio(best["ours"], peers),
        "own MPI": _ratio(best["ours"], own),
    }


def _ratio(ours: list[float], peers: dict[str, list[float]]) -> float:
    """The median over the rounds of the fastest of ``peers`` / ours; 0 without peers."""
    if not peers:
        return 0.0
    return float(statistics.median(min(times) / mine for mine, *times in zip(ours, *peers.values(), strict=True)))


def measurements(
    processes: int, contenders: dict[str, Team], quick: bool, only: str, rounds: int, sizes: list[int]
) -> Iterator[dict[str, Any]]:
    """All cases for ``processes`` ranks whose name begins with ``only``."""
    budget = 0.04 if quick else 0.15
    for (what, dtype), (full_sizes, quick_sizes) in CASES.items():
        for nbytes in quick_sizes if quick else full_sizes:
            if not what.startswith(only) or (sizes and nbytes // KIB not in sizes):
                continue
            yield measure(Case(what, dtype, processes, nbytes), contenders, rounds=rounds, budget=budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds; takes less than 50 s")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    parser.add_argument("--processes", type=int, nargs="+", default=None, help="numbers of ranks (default 2 4 8)")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default 5; quick: 3)")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="KIB", default=[], help="only these sizes")
    parser.add_argument("--only", default="", metavar="COLLECTIVE", help="only cases whose name begins like this")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    clean_up_when_told()
    options.processes = options.processes or ([2, 4] if options.quick else [2, 4, 8])
    rounds = options.rounds or (3 if options.quick else 5)
    rows: list[dict[str, Any]] = []
    print(f"{os.cpu_count()} cores; microseconds per call, ratio = fastest peer / ours", flush=True)
    names = [variant for name in launchers() if name != "ours" for variant in VARIANTS.get(name, [name])]
    print(f"{'case':<42}{'ours':>10}" + "".join(f"{name:>18}" for name in names) + f"{'ratio':>8}")
    for processes in options.processes:
        with teams(processes) as contenders:
            for row in measurements(processes, contenders, options.quick, options.only, rounds, options.sizes):
                rows.append(row)
                by_name = row["peers"]
                peers = "".join(f"{by_name[name]:>18.1f}" if name in by_name else " " * 18 for name in names)
                peers += "".join(f"   {name} {by_name[name]:.1f}" for name in by_name if name not in names)
                print(f"{row['case']:<42}{row['ours']:>10.1f}{peers}{row['ratio']:>8.2f}", flush=True)
                if options.json:  # immediately: a long run may be interrupted
                    options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
