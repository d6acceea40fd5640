"""Training steps of PyTorch modules: the PopTorch front end against eager PyTorch, torch.compile, and DDP over gloo.

    python benchmarks/poptorch.py [--quick] [--json FILE] [--cases mlp cnn ...]

The same module, data and optimiser (SGD with momentum 0.9), one thread each; a step begins with tensors on the host
and ends with its loss there. In one process the contenders take turns in short blocks; with two, ``poprun-py`` and
``torchrun`` (DistributedDataParallel over gloo) are started in turns, each process with a micro-batch of its own. A
ratio is the median over rounds of peer / ours: above 1 we are faster. Losses are compared before.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from support.extras import need

need("torch", extra="bench")

import torch
from support.ending import clean_up_when_told
from support.rounds import Row, blocks, measured_in_turns, row_of_times, write_rows
from support.torch_networks.compiled import compiled_anew
from support.two_processes import Step, TwoProcesses, check_losses, print_median
from torch import nn
from torch.nn import functional

import ipu_emu.poptorch as poptorch
import popdist_py

HERE = Path(__file__).resolve()


class Classifier(nn.Module):
    """A body with the loss of its outputs."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any, target: Any) -> Any:
        return functional.cross_entropy(self.body(x), target)


class Residual(nn.Module):
    """Two convolutions with normalisation around a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()),
            *(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)),
        )
        self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        return functional.relu(self.layers(x) + self.shortcut(x))


class Language(nn.Module):
    """A causal transformer, or an LSTM, over characters."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.table, self.head, self.kind = nn.Embedding(96, 128), nn.Linear(128, 96), body
        self.places = nn.Parameter(torch.randn(128, 128) * 0.02)
        if body == "lstm":
            self.body: nn.Module = nn.LSTM(128, 128, batch_first=True)
        else:
            layer = nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(128))

    def forward(self, ids: Any, target: Any) -> Any:
        x = self.table(ids)
        length = ids.shape[1]
        y = self.body(x)[0] if self.kind == "lstm" else self.body(x + self.places[:length], mask=self.mask)
        return functional.cross_entropy(self.head(y).flatten(0, 1), target.flatten())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def resnet() -> nn.Module:
    stem = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = (Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mixed() -> nn.Module:
    deep = (nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 64, 1))
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), *deep, nn.ReLU(), nn.Flatten(), nn.Linear(64 * 256, 10))


#: case: (module, shape of the inputs, about the seconds of a step)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "mlp": (lambda: Classifier(mlp()), (32, 784), 0.003),
    "cnn": (lambda: Classifier(resnet()), (32, 3, 32, 32), 0.06),
    "depthwise": (lambda: Classifier(mixed()), (16, 3, 32, 32), 0.02),
    "transformer": (lambda: Language("transformer"), (8, 128), 0.2),
    "lstm": (lambda: Language("lstm"), (16, 32), 0.05),
}


def batch(case: str, seed: int) -> tuple[Any, Any]:
    shape, source = CASES[case][1], torch.Generator().manual_seed(seed)
    if case in ("transformer", "lstm"):
        return torch.randint(0, 96, shape, generator=source), torch.randint(0, 96, shape, generator=source)
    return torch.randn(shape, generator=source), torch.randint(0, 10, shape[:1], generator=source)


def module(case: str) -> nn.Module:
    torch.manual_seed(0)
    return CASES[case][0]()


def optimiser(net: nn.Module) -> Any:
    return torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)


def ours(case: str, *, parallel: bool = False) -> Step:
    net, seed, options = module(case), 0, poptorch.Options()
    if parallel:
        from ipu_emu.poptorch.popdist_options import Options

        popdist_py.init()
        options, seed = Options(), popdist_py.getInstanceIndex()
    model = poptorch.trainingModel(net, options, optimiser(net))
    data = batch(case, seed)
    return lambda: float(model(*data))


def eager(case: str, *, compiled: bool = False, parallel: bool = False) -> Step:
    plain, seed = module(case), 0
    net: Any = plain
    if parallel:
        torch.distributed.init_process_group("gloo")
        net, seed = nn.parallel.DistributedDataParallel(plain), torch.distributed.get_rank()
    updates = optimiser(plain)
    data = batch(case, seed)
    if compiled:
        net = compiled_anew(plain)

    def step() -> float:
        updates.zero_grad()
        loss = net(*data)
        loss.backward()
        updates.step()
        return float(loss.detach())

    return step


def alone(case: str, *, rounds: int, seconds: float, compiles: bool) -> list[Row]:
    """One process: ours, eager PyTorch, and torch.compile where a compiler is installed."""
    steps = {"ours": ours(case), "eager": eager(case)}
    check_losses(case, steps["ours"], steps["eager"], 2e-5, least=1.0)
    if compiles:
        steps["torch.compile"] = eager(case, compiled=True)
    times, failed = measured_in_turns(blocks(steps, seconds), ["ours"], rounds)
    return [
        row_of_times(f"{case}, 1 process, against {peer}", times, "ours", peer, failed=failed)
        for peer in steps
        if peer != "ours"
    ]


def together(case: str, *, rounds: int, seconds: float) -> list[Row]:
    """Two processes, started in turns; the slower process counts."""
    pair = TwoProcesses([str(HERE), "--seconds", str(seconds), "--cases", case, "--worker"], port=29541)
    return [pair.row(f"{case}, 2 processes, against DDP + gloo", rounds)]


def worker(case: str, kind: str, seconds: float) -> None:
    """One of two processes: prints its median step."""
    step = ours(case, parallel=True) if kind == "ours" else eager(case, parallel=True)
    print_median(step, max(5, int(seconds / CASES[case][2])), warm_up=5)


def can_compile() -> bool:
    """Whether torch.compile works here: it needs a C++ compiler."""
    try:
        torch.compile(copy.deepcopy(nn.Linear(2, 2)))(torch.ones(1, 2)).sum().backward()
    except Exception as error:
        print(f"torch.compile is left out: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps of PyTorch modules, one thread per process.")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer and shorter rounds, torch.compile and two processes for the first network only; takes about 60 s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES), help="networks to measure")
    parser.add_argument("--worker", choices=["ours", "pytorch"], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    seconds = args.seconds or (0.3 if args.quick else 1.0)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.worker:
        worker(args.cases[0], args.worker, seconds)
        return
    clean_up_when_told()
    compiles, rows = can_compile(), []
    for case in args.cases:
        complete = not args.quick or case == args.cases[0]  # compiling and starting processes take longest
        results = alone(case, rounds=3 if args.quick else 9, seconds=seconds, compiles=compiles and complete)
        if complete:
            results += together(case, rounds=1 if args.quick else 5, seconds=2 * seconds)
        for line in results:
            print(line, flush=True)
        rows += results
    ratios = [row.ratio for row in rows if row.peers]
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}, of {len(ratios)} rows")
    write_rows(args.json, rows)


if __name__ == "__main__":
    main()
