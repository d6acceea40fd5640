"""Published architectures against PyTorch and onnxruntime: training and inference, one thread, one and two processes.

    python benchmarks/models.py [--quick] [--json FILE] [--cases gpt2 resnet18] [--peers eager onnxruntime ddp]

The networks are written in PyTorch (in ``support``), have random weights, and reach us and onnxruntime as ONNX
files that PyTorch exports; nothing is downloaded. Training is SGD with momentum 0.9: loss, gradients and update;
inference is the forward pass of the evaluation form. Same weights, batch, type (float32) and threads (one); all are
compiled and warm before they are timed, and losses or results are compared first. Contenders take turns in short
blocks. In one process the processor time of a step counts, which other work on the machine disturbs least; with two
processes (``poprun-py`` against ``torchrun`` with DistributedDataParallel over gloo) the wall time of the slower one.
A number is the median over rounds, the ratio that of fastest peer / ours: above 1 we are faster. A peer that fails is
named, and the run goes on.
"""

from __future__ import annotations

import argparse
import io
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
import torch
from support.ending import clean_up_when_told
from support.rounds import Row, blocks, measured_in_turns, reason, row_of_times, write_rows
from support.torch_networks import language, vision
from support.torch_networks.compiled import compiled_anew
from support.two_processes import TwoProcesses, print_median

import ipu_emu.popart as popart
import popdist_py
import popdist_py.popart

HERE = Path(__file__).resolve()
RATE, MOMENTUM = 1e-3, 0.9
PEERS = ["eager", "compile", "onnxruntime", "ddp"]
OPSET = 17
#: The networks of --quick, and the one that --quick runs in two processes.
QUICK, QUICK_TOGETHER = ["mlp", "mobilenet_v3", "lstm"], "mlp"

#: Runs one step and returns its loss, or one forward pass and returns its result.
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """``make`` builds the network; images, or tokens if there is one number, of ``shape``."""

    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    tokens: bool = False

    def batch(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        if self.tokens:
            return tuple(random.integers(0, language.WORDS, self.shape) for _ in range(2))  # type: ignore[return-value]
        data = random.standard_normal(self.shape).astype(np.float32)
        return data, random.integers(0, vision.CLASSES, self.shape[:1])


CASES = {
    "mlp": Case(vision.mlp, (64, 784)),
    "resnet18": Case(vision.ResNet, (8, 3, 64, 64)),
    "mobilenet_v2": Case(vision.MobileNetV2, (8, 3, 64, 64)),
    "mobilenet_v3": Case(vision.MobileNetV3, (8, 3, 64, 64)),
    "squeezenet": Case(vision.SqueezeNet, (8, 3, 64, 64)),
    "convnext": Case(vision.ConvNeXt, (4, 3, 64, 64)),
    "vit": Case(vision.ViT, (4, 3, 64, 64)),
    "bert": Case(language.Bert, (4, 128), tokens=True),
    "gpt2": Case(language.Gpt2, (4, 128), tokens=True),
    "llama": Case(language.Llama, (4, 128), tokens=True),
    "t5": Case(language.T5, (4, 64), tokens=True),
    "whisper": Case(language.WhisperEncoder, (4, 80, 256)),
    "lstm": Case(language.LstmModel, (4, 64), tokens=True),
}


class WithLoss(torch.nn.Module):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, t: Any) -> Any:
        y = self.net(x)
        return torch.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))


def network(case: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return CASES[case].make()


def exported(case: str, *, training: bool) -> bytes:
    """The network as ONNX: with its loss for training, in its evaluation form for inference."""
    net, batch = network(case), [torch.tensor(array) for array in CASES[case].batch(0)]
    mode, file = torch.onnx.TrainingMode, io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if training:
            how: dict[str, Any] = {"training": mode.TRAINING, "do_constant_folding": False, "output_names": ["loss"]}
            torch.onnx.export(WithLoss(net).train(), tuple(batch), file, input_names=["x", "t"], **OLD, **how)
        else:
            torch.onnx.export(net.eval(), (batch[0],), file, input_names=["x"], output_names=["y"], **OLD)
    return file.getvalue()


#: The exporter that needs no further package.
OLD: dict[str, Any] = {"dynamo": False, "opset_version": OPSET}


# Ours


def device(options: popart.SessionOptions, *, parallel: bool) -> Any:
    if not parallel:
        return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    popdist_py.init()
    popdist_py.popart.configureSessionOptions(options)
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return popdist_py.popart.getDevice()


def our_training(case: str, *, parallel: bool = False) -> Step:
    options = popart.SessionOptions()
    options.trainedWeights = [f"net.{name}" for name, _ in network(case).named_parameters()]
    where = device(options, parallel=parallel)
    optimizer = popart.SGD(
        {"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    )
    model, flow = exported(case, training=True), popart.DataFlow(1, ["loss"])
    session = popart.TrainingSession(model, flow, "loss", optimizer, where, userOptions=options)
    x, t = CASES[case].batch(popdist_py.getInstanceIndex() if parallel else 0)
    return _running(session, {"x": x, "t": t}, "loss")


def our_inference(case: str) -> Step:
    options = popart.SessionOptions()
    where = device(options, parallel=False)
    model, flow = exported(case, training=False), popart.DataFlow(1, ["y"])
    return _running(
        popart.InferenceSession(model, flow, where, userOptions=options), {"x": CASES[case].batch(0)[0]}, "y"
    )


def _running(session: Any, data: dict[str, np.ndarray], anchor: str) -> Step:
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO(data, anchors)

    def step() -> Any:
        session.run(stepio)
        return anchors[anchor]

    return step


# Peers


def torch_training(case: str, *, compiled: bool = False, parallel: bool = False) -> Step:
    torch.set_num_threads(1)
    net: Any = WithLoss(network(case)).train()
    if parallel:
        torch.distributed.init_process_group("gloo")
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    x, t = (torch.tensor(array) for array in CASES[case].batch(int(os.environ.get("RANK", "0")) if parallel else 0))
    forward = compiled_anew(net) if compiled else net

    def step() -> Any:
        optimizer.zero_grad()
        loss = forward(x, t)
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


def torch_inference(case: str, *, compiled: bool = False) -> Step:
    torch.set_num_threads(1)
    net: Any = network(case).eval()
    net, x = compiled_anew(net) if compiled else net, torch.tensor(CASES[case].batch(0)[0])

    def step() -> Any:
        with torch.inference_mode():
            return net(x).numpy()

    return step


def onnxruntime_inference(case: str) -> Step:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        exported(case, training=False), options, providers=["CPUExecutionProvider"]
    )
    x = CASES[case].batch(0)[0]
    return lambda: session.run(None, {"x": x})[0]


TRAINING: dict[str, Callable[[str], Step]] = {
    "eager": torch_training,
    "compile": lambda case: torch_training(case, compiled=True),
}
INFERENCE: dict[str, Callable[[str], Step]] = {
    "eager": torch_inference,
    "compile": lambda case: torch_inference(case, compiled=True),
    "onnxruntime": onnxruntime_inference,
}


# Measuring


def alone(
    case: str, kind: str, mine: Step, peers: dict[str, Callable[[str], Step]], *, rounds: int, seconds: float
) -> Row:
    """Our steps and those of the peers that run, in turns."""
    steps, failed, tolerance = {"ours": mine}, {}, 5e-3
    for name, make in peers.items():
        try:
            steps[name] = make(case)
            steps[name]()
        except Exception as error:  # the failure of a peer is a result
            steps.pop(name, None)
            failed[name] = reason(error)
    expected = [np.array(step()) for name, step in steps.items() if name == "eager"]
    if expected:
        actual = np.array(mine())
        if kind == "training":  # the eager step above was its second
            actual = np.array(mine())
        worst = np.abs(actual - expected[0]).max() / np.abs(expected[0]).max()
        if not worst < tolerance:
            raise SystemExit(
                f"models.py: {case}, {kind}: results differ from PyTorch's by {worst:.2g} of the largest"
            )
    times, stopped = measured_in_turns(blocks(steps, seconds, process_time), ["ours"], rounds)
    return row_of_times(f"{case}, {kind}, 1 process", times, "ours", *peers, failed=failed | stopped)


def together(case: str, *, peer: bool, rounds: int, seconds: float) -> Row:
    """Two processes, started in turns; the slower process counts."""
    pair = TwoProcesses([str(HERE), "--seconds", str(seconds), "--cases", case, "--worker"], port=29534)
    return pair.row(f"{case}, training, 2 processes", rounds, peer=peer, timeout=240)


def worker(case: str, kind: str, seconds: float) -> None:
    """One of two processes: prints its median step."""
    step = our_training(case, parallel=True) if kind == "ours" else torch_training(case, parallel=True)
    print_median(step, max(3, int(seconds / 0.1) - 3), warm_up=3)


def measured(case: str, kinds: Sequence[str], peers: Sequence[str], *, rounds: int, seconds: float) -> list[Row]:
    """The rows of one network."""
    rows: list[Row] = []
    for kind, mine, table in (("training", our_training, TRAINING), ("inference", our_inference, INFERENCE)):
        if kind in kinds:
            makers = {name: make for name, make in table.items() if name in peers}
            rows.append(alone(case, kind, mine(case), makers, rounds=rounds, seconds=seconds))
            print(rows[-1], flush=True)
    if "together" in kinds:
        rows.append(together(case, peer="ddp" in peers, rounds=rounds, seconds=2 * seconds))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Published architectures against PyTorch and onnxruntime.")
    parser.add_argument(
        "--quick", action="store_true", help=f"{', '.join(QUICK)} in short blocks, without torch.compile; under 50 s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", choices=CASES, help="networks to measure")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="peers to measure")
    kinds = ["training", "inference", "together"]
    parser.add_argument("--kinds", nargs="*", choices=kinds, default=kinds, help="what to measure")
    parser.add_argument("--rounds", type=int, default=None, help="rounds in which the contenders take turns")
    parser.add_argument("--worker", choices=["ours", "pytorch"], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    seconds = args.seconds or (0.15 if args.quick else 1.0)
    if args.worker:
        worker(args.cases[0], args.worker, seconds)
        return
    clean_up_when_told()
    rows: list[Row] = []
    peers = args.peers if args.peers is not None else [p for p in PEERS if not args.quick or p != "compile"]
    for case in args.cases or (QUICK if args.quick else CASES):
        chosen = [kind for kind in args.kinds if kind != "together" or not args.quick or case == QUICK_TOGETHER]
        results = measured(case, chosen, peers, rounds=args.rounds or (2 if args.quick else 5), seconds=seconds)
        rows += results
        write_rows(args.json, rows)


if __name__ == "__main__":
    main()
