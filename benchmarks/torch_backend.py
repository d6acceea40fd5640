"""gcl against gloo as back ends of torch.distributed: collectives on the program's own tensors, and training steps.

    python benchmarks/torch_backend.py [--quick] [--json FILE] [--ranks 2 4 8] [--only collectives ddp fsdp overlap]

Both back ends are process groups of the same processes, of one thread each, and take turns in short blocks of calls;
a row is the median over the blocks of the slowest rank's time per call. The ratio is the median over blocks of
gloo / gcl: above 1 gcl is faster.
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
from time import perf_counter, sleep
from typing import Any

from support.extras import need

need("torch", extra="bench")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gcl.torch

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BACKENDS = ("gcl", "gloo")
CASES = ("collectives", "ddp", "fsdp", "overlap")
#: Seconds of a pause in a backward pass: more than an all-reduce of a layer takes.
PAUSE = 0.02
#: What a ratio must be at least: (up to bytes, float32, half types).
WANTED = ((KIB, 2.0, 2.0), (64 * MIB, 3.0, 10.0))
Call = Callable[[], object]


def collectives(nbytes: int, dtype: torch.dtype, group: dist.ProcessGroup) -> Iterator[tuple[str, Call]]:
    """Each collective on a tensor of ``nbytes`` in all, on tensors that PyTorch allocated."""
    ranks = group.size()
    count = nbytes // dtype.itemsize // ranks * ranks
    whole, part = torch.ones(count, dtype=dtype), torch.ones(count // ranks, dtype=dtype)
    other = torch.ones(count, dtype=dtype)
    yield "all_reduce", lambda: dist.all_reduce(whole, group=group)
    if dtype is torch.float32 or group.size() == 2:
        yield "reduce_scatter", lambda: dist.reduce_scatter_single(part, whole, group=group)
    yield "all_gather", lambda: dist.all_gather_single(whole, part, group=group)
    yield "broadcast", lambda: dist.broadcast(whole, 0, group=group)
    yield "all_to_all", lambda: dist.all_to_all_single(other, whole, group=group)


def in_turns(calls: dict[str, Call], least: float, rounds: int) -> dict[str, Any]:
    """Seconds per call of each back end, in blocks of at least ``least`` seconds that take turns."""
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    number = {}
    for name, call in calls.items():
        call()
        since = perf_counter()
        call()
        number[name] = agreed(max(1, min(200, round(least / (perf_counter() - since)))))
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            since = perf_counter()
            for _ in range(number[name]):
                call()
            blocks[name].append(slowest((perf_counter() - since) / number[name]))
    ratios = [theirs / ours for ours, theirs in zip(blocks["gcl"], blocks["gloo"], strict=True)]
    found = {name: statistics.median(times) for name, times in blocks.items()}
    return {**found, "ratio": statistics.median(ratios)}


def agreed(number: int) -> int:
    """The number of rank 0."""
    found = torch.tensor([number])
    dist.broadcast(found, 0)
    return int(found.item())


def slowest(seconds: float) -> float:
    found = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found.item())


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """17 million parameters."""
    layers = [nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 10)), torch.randn(16, 1024)


class Block(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.skip = nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norms[1](self.two(torch.relu(self.norms[0](self.one(x)))))
        return torch.relu(inner + self.skip(x))


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    """11 million parameters, on images of 32 x 32."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    blocks = [Block(*width) for width in [*widths, (256, 512, 2), (512, 512, 1)]]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), *blocks, *head), torch.randn(
        2, 3, 32, 32
    )


class Bert(nn.Module):
    """BERT-small: 4 layers of width 512, 29 million parameters with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30522, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, 0.0, "gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 4), nn.Linear(512, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens))[:, 0])


def bert_small() -> tuple[nn.Module, torch.Tensor]:
    return Bert(), torch.randint(0, 30522, (2, 64))


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "mlp_17m": mlp,
    "resnet18": resnet18,
    "bert_small": bert_small,
}


def ddp_step(name: str, group: dist.ProcessGroup, *, hook: bool) -> Call:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if hook:
        wrapped.register_comm_hook(group, gcl.torch.ddp_hook)
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


class Pause(torch.autograd.Function):
    """Nothing forwards; backwards a pause, as where gradients come from a device or another process."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        sleep(PAUSE)
        return gradient


class Pausing(nn.Module):
    """Four layers of 16 MiB; after the gradients of each there is a pause."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(Pause.apply(x))
        return x


def overlap_steps(groups: dict[str, dist.ProcessGroup]) -> dict[str, Call]:
    """Steps of DDP on each back end, without all-reduces, and with all-reduces after the backward pass."""
    x = torch.randn(4, 2048, requires_grad=True)
    steps = {
        backend: step_of(DistributedDataParallel(Pausing(), process_group=group, bucket_cap_mb=1), x)
        for backend, group in groups.items()
    }
    alone, after = Pausing(), Pausing()
    steps["one process"] = step_of(alone, x)
    step = step_of(after, x)

    def in_turn() -> None:
        step()
        for parameter in after.parameters():
            dist.all_reduce(parameter.grad, group=groups["gcl"])

    steps["gcl in turn"] = in_turn
    return steps


def hidden(timed: dict[str, Any]) -> float:
    """The part of the time of all-reduces that a step with overlap saves."""
    return (timed["gcl in turn"] - timed["gcl"]) / (timed["gcl in turn"] - timed["one process"])


def measure(rank: int, ranks: int, store: str, options: argparse.Namespace, into: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    least, rounds = (0.02, 3) if options.quick else (0.1, 7)
    rows = []

    def add(row: dict[str, Any]) -> None:
        rows.append({"ranks": ranks, **row})
        if rank == 0:
            print(told(rows[-1]), flush=True)

    if "collectives" in options.only:
        for dtype in DTYPES:
            for nbytes in options.sizes:
                each = {backend: dict(collectives(nbytes, dtype, group)) for backend, group in groups.items()}
                for name in each["gloo"]:
                    timed = in_turns({backend: each[backend][name] for backend in BACKENDS}, least, rounds)
                    add({"case": name, "dtype": str(dtype)[6:], "bytes": nbytes, **timed})
    if "ddp" in options.only:
        for name in MODELS:
            steps = {backend: ddp_step(name, group, hook=False) for backend, group in groups.items()}
            steps["gcl with ddp_hook"] = ddp_step(name, groups["gcl"], hook=True)
            steps["one process"] = alone_step(name)
            timed = in_turns(steps, 4 * least, rounds)
            add({"case": f"ddp step, {name}", **timed, "ratio_hook": timed["gloo"] / timed["gcl with ddp_hook"]})
    if "fsdp" in options.only:
        steps = {backend: fsdp_step(group) for backend, group in groups.items()}
        add({"case": "fsdp2 step, mlp_17m", **in_turns(steps, 4 * least, rounds)})
    if "overlap" in options.only:
        timed = in_turns(overlap_steps(groups), 4 * least, rounds)
        add({"case": "overlap with a backward pass that pauses", **timed, "hidden": hidden(timed)})
    dist.barrier()
    if rank == 0:
        into.send(rows)
    dist.destroy_process_group()


def told(row: dict[str, Any]) -> str:
    what = f"{row['ranks']} ranks, {row['case']}"
    if "bytes" in row:
        what += f", {row['dtype']}, {row['bytes'] // KIB} KiB"
    times = ", ".join(f"{name} {1e3 * value:.3f} ms" for name, value in row.items() if _is_time(name))
    said = f"{what:50} {times}, ratio {row['ratio']:.2f}{missed(row)}"
    return f"{said}, {row['hidden']:.0%} of the all-reduces hidden" if "hidden" in row else said


def _is_time(name: str) -> bool:
    return name not in ("ranks", "case", "dtype", "bytes", "ratio", "ratio_hook", "hidden")


def missed(row: dict[str, Any]) -> str:
    """A remark if the ratio is below what is wanted."""
    if "bytes" not in row:
        return ""
    wanted = next(w[1 if row["dtype"] == "float32" else 2] for w in WANTED if row["bytes"] <= w[0])
    return "" if row["ratio"] >= wanted else f"  (below {wanted:g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter blocks")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--only", nargs="+", default=CASES)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rows = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            forks = multiprocessing.get_context("fork")
            mine, theirs = forks.Pipe(duplex=False)
            given = [(rank, ranks, f"{folder}/store", options, theirs) for rank in range(ranks)]
            started = [forks.Process(target=measure, args=one) for one in given]
            for process in started:
                process.start()
            theirs.close()
            rows += mine.recv()
            for process in started:
                process.join()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
