"""gcl against gloo as back ends of torch.distributed: collectives on the program's own tensors, and training steps.

    python benchmarks/torch_backend.py [--quick] [--json FILE] [--ranks 2 4 8] [--only collectives ddp fsdp overlap]

Both back ends are process groups of the same processes, of one thread each, and take turns in short blocks of calls;
a row is the median over the blocks of the slowest rank's time per call. The ratio is the median over blocks of
gloo / gcl: above 1 gcl is faster. ``copy`` is the fastest plain copy, in private memory, of as many bytes as a rank
must write in the call, made by all ranks that must: what writes them can hardly be faster. If a ratio misses its
goal, the row says which ratio such a copy has. Steps of DDP are also measured in ``one process`` without DDP, and
with ``no all-reduce``, which no back end can beat. ``benchmarks/tables.py`` writes what ``--json`` has written, of
``--only collectives`` and of the other cases, as the tables of ``docs/torch-backend.md``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from support.extras import need

need("torch", extra="bench")

import torch
import torch.distributed as dist
from support.overlap import PASSES, hidden_parts, passes, unreduced
from support.plain_copies import plain_copies
from support.torch_models import MODELS, mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gcl.torch

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BACKENDS = ("gcl", "gloo")
CASES = ("collectives", "ddp", "fsdp", "overlap")
#: Of ``--quick``: sizes of each dtype for a number of ranks, and models of DDP; other numbers have what 8 has.
QUICK = {
    2: ({torch.float32: (KIB, 64 * KIB, 16 * MIB), torch.float16: (64 * KIB, 16 * MIB)}, tuple(MODELS)),
    4: ({torch.float32: (64 * KIB, 16 * MIB)}, ()),
    8: ({torch.float32: (16 * MIB,)}, ()),
}
#: What a ratio must be at least: (up to bytes, float32, half types).
WANTED = ((KIB, 2.0, 2.0), (64 * MIB, 3.0, 10.0))
Call = Callable[[], object]


def collectives(nbytes: int, dtype: torch.dtype, group: dist.ProcessGroup) -> Iterator[tuple[str, Call]]:
    """Each collective on a tensor of ``nbytes`` in all, on tensors that PyTorch allocated."""
    ranks = group.size()
    count = nbytes // dtype.itemsize // ranks * ranks
    full, part = torch.ones(count, dtype=dtype), torch.ones(count // ranks, dtype=dtype)
    other = torch.ones(count, dtype=dtype)
    yield "all_reduce", lambda: dist.all_reduce(full, group=group)
    if dtype is torch.float32 or group.size() == 2:
        yield "reduce_scatter", lambda: dist.reduce_scatter_single(part, full, group=group)
    yield "all_gather", lambda: dist.all_gather_single(full, part, group=group)
    yield "broadcast", lambda: dist.broadcast(full, 0, group=group)
    yield "all_to_all", lambda: dist.all_to_all_single(other, full, group=group)


def copies(name: str, nbytes: int, dtype: torch.dtype, ranks: int) -> dict[str, Call]:
    """Plain copies of what this rank writes in collective ``name``."""
    count = nbytes // dtype.itemsize // ranks * ranks
    if name == "reduce_scatter":
        count //= ranks
    elif name == "broadcast" and dist.get_rank() == 0:
        count = 0
    return plain_copies(torch.ones(count, dtype=dtype), torch.ones(count, dtype=dtype))


def in_turns(calls: dict[str, Call], least: float, rounds: int) -> dict[str, list[float]]:
    """Seconds per call of each of ``calls`` on the slowest rank, in blocks that take turns.

    ``least``: seconds of a block, in which there is at least one call.
    """
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    number = dict.fromkeys(calls, 1)
    for name, call in calls.items():
        call()
        if least:
            since = perf_counter()
            call()
            number[name] = max(1, min(200, round(least / max(1e-6, slowest(perf_counter() - since)))))
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            if number[name] > 1:
                call()  # ranks leave the barrier at different times
            since = perf_counter()
            for _ in range(number[name]):
                call()
            blocks[name].append(slowest((perf_counter() - since) / number[name]))
    return blocks


def summary(blocks: dict[str, list[float]]) -> dict[str, Any]:
    """The median of each contender, and of gloo / gcl."""
    ratios = [theirs / ours for ours, theirs in zip(blocks["gcl"], blocks["gloo"], strict=True)]
    return {**{name: statistics.median(times) for name, times in blocks.items()}, "ratio": statistics.median(ratios)}


def slowest(seconds: float) -> float:
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor.item())


def mean_of_ranks(value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor.item()) / dist.get_world_size()


def ddp_step(name: str, group: dist.ProcessGroup, hook: Callable[..., Any] | None = None) -> Call:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if hook:
        wrapped.register_comm_hook(group, hook)
    return step_of(wrapped, x)


def step_of(model: nn.Module, x: torch.Tensor) -> Call:
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    target = torch.randint(0, 10, (len(x),))

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimiser.step()

    return step


def alone_step(name: str) -> Call:
    torch.manual_seed(0)
    return step_of(*MODELS[name]())


def fsdp_step(group: dist.ProcessGroup) -> Call:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, x = mlp()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return step_of(model, x)


class Measurement:
    """What one rank of ``ranks`` measures, and the rows of it."""

    def __init__(self, rank: int, ranks: int, options: argparse.Namespace) -> None:
        self._rank, self._ranks, self._options = rank, ranks, options
        self._groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
        self._least, self._rounds, self._steps = (0.02, 3, 3) if options.quick else (0.1, 7, 11)
        self._sizes, self._models = dict.fromkeys(DTYPES, SIZES), tuple(MODELS)
        if options.quick:
            self._sizes, self._models = QUICK.get(ranks, QUICK[8])
        if options.sizes:
            self._sizes = dict.fromkeys(self._sizes, options.sizes)
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure all cases that are asked for."""
        for case in self._options.only:
            getattr(self, f"_{case}")()

    def _add(self, row: dict[str, Any]) -> None:
        self.rows.append({"ranks": self._ranks, **row, "load": os.getloadavg()[0]})
        if self._rank == 0:
            print(printed(self.rows[-1]), flush=True)

    def _collectives(self) -> None:
        for dtype, sizes in self._sizes.items():
            for nbytes in sizes:
                sets = {backend: dict(collectives(nbytes, dtype, group)) for backend, group in self._groups.items()}
                for name in sets["gloo"]:
                    bare = copies(name, nbytes, dtype, self._ranks)
                    calls = {**{backend: sets[backend][name] for backend in BACKENDS}, **bare}
                    timed = summary(in_turns(calls, self._least, self._rounds))
                    timed["copy"] = min(timed.pop(kind) for kind in bare)
                    self._add({"case": name, "dtype": str(dtype)[6:], "bytes": nbytes, **timed})

    def _ddp(self) -> None:
        for name in self._models:
            steps = {backend: ddp_step(name, group) for backend, group in self._groups.items()}
            steps["gcl with ddp_hook"] = ddp_step(name, self._groups["gcl"], gcl.torch.ddp_hook)
            steps["no all-reduce"] = ddp_step(name, self._groups["gcl"], unreduced)
            steps["one process"] = alone_step(name)
            blocks = in_turns(steps, 0, self._steps)
            with_hook = summary({"gcl": blocks["gcl with ddp_hook"], "gloo": blocks["gloo"]})["ratio"]
            self._add({"case": f"ddp step, {name}", **summary(blocks), "ratio_hook": with_hook})

    def _fsdp(self) -> None:
        if self._options.quick and self._ranks != 2:
            return
        steps = {backend: fsdp_step(group) for backend, group in self._groups.items()}
        self._add({"case": "fsdp2 step, mlp_17m", **summary(in_turns(steps, 0, self._steps))})

    def _overlap(self) -> None:
        if self._options.quick and self._ranks != 2:
            return
        for name in PASSES:
            blocks = in_turns(passes(name, self._groups), 0, self._steps)
            parts = {backend: hidden_parts(name, backend, self._steps) for backend in BACKENDS}
            hidden = {backend: mean_of_ranks(statistics.median(shares)) for backend, shares in parts.items()}
            self._add({"case": name, **summary(blocks), "hidden": hidden})


def measure(rank: int, ranks: int, store: str, options: argparse.Namespace, into: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    measurement = Measurement(rank, ranks, options)
    measurement.run()
    dist.barrier()
    if rank == 0:
        into.send(measurement.rows)
    dist.destroy_process_group()


def _size(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"


def printed(row: dict[str, Any]) -> str:
    what = f"{row['ranks']} ranks, {row['case']}"
    if "bytes" in row:
        what += f", {row['dtype']}, {_size(row['bytes'])}"
    times = ", ".join(f"{name} {1e3 * value:.3f} ms" for name, value in row.items() if _is_time(name))
    said = f"{what:50} {times}, ratio {row['ratio']:.2f}"
    if "ratio_hook" in row:
        said += f", with ddp_hook {row['ratio_hook']:.2f}"
    return f"{said}, {hidden(row)}" if "hidden" in row else said + missed(row)


def hidden(row: dict[str, Any]) -> str:
    """Which part of the time of all-reduces is before the end of the backward pass."""
    return "hidden: " + ", ".join(f"{name} {part:.0%}" for name, part in row["hidden"].items())


def _is_time(name: str) -> bool:
    return name not in ("ranks", "case", "dtype", "bytes", "ratio", "ratio_hook", "hidden", "load")


def missed(row: dict[str, Any]) -> str:
    """A remark if the ratio is below what is wanted."""
    if "bytes" not in row:
        return ""
    wanted = next(w[1 if row["dtype"] == "float32" else 2] for w in WANTED if row["bytes"] <= w[0])
    if row["ratio"] >= wanted:
        return ""
    return f"  (below {wanted:g}; a copy {row['gloo'] / row['copy']:.2f})"


def measured(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` as ``benchmarks/tables.py`` reads it: milliseconds of gcl, and of what it is compared with."""
    case = f"{row['case']}, {row['ranks']} ranks"
    if "bytes" in row:
        case += f", {row['dtype']}, {_size(row['bytes'])}"
    if "hidden" in row:
        case += f" ({hidden(row)})"
    peers = {name: 1e3 * value for name, value in row.items() if _is_time(name) and name != "gcl"}
    result = {"case": case, "unit": "ms", "ours": 1e3 * row["gcl"], "peers": peers, "ratio": row["ratio"]}
    return {**result, "load": row["load"]} if "load" in row else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a sample of the rows, and fewer and shorter blocks")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", type=int, nargs="+", help=f"bytes (default: {SIZES}, of which --quick takes some)")
    parser.add_argument("--only", nargs="+", default=CASES, choices=CASES)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rows = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            forks = multiprocessing.get_context("fork")
            mine, theirs = forks.Pipe(duplex=False)
            arguments = [(rank, ranks, f"{folder}/store", options, theirs) for rank in range(ranks)]
            started = [forks.Process(target=measure, args=entry) for entry in arguments]
            for process in started:
                process.start()
            theirs.close()
            rows += mine.recv()
            for process in started:
                process.join()
    if options.json:
        options.json.write_text(json.dumps(list(map(measured, rows)), indent=1))


if __name__ == "__main__":
    main()
