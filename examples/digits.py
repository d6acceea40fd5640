"""Train a small convolutional network on real hand-written digits, on as many emulated IPUs as the launcher gives.

    python examples/digits.py                                                   one instance, one replica
    poprun-py --num-instances 2 --num-replicas 4 python examples/digits.py      two instances of two replicas each
    poprun-py --max-restarts 3 ... python examples/digits.py --checkpoints DIR  continues after a kill

Every instance runs this program. Replicas share each batch and reduce their gradients, so that their weights stay
equal. The images that a replica sees depend only on its global index, so that the result does not depend on how the
replicas are spread over instances.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart
from ipu_emu.hostio.checkpoint import Checkpoints
from popdist_py.files.atomic_write import replace_file

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
ACCUMULATION = 2
WEIGHTS = {
    "conv1_weights": (16, 1, 3, 3),
    "conv1_bias": (16,),
    "conv2_weights": (32, 16, 3, 3),
    "conv2_bias": (32,),
    "dense_weights": (128, 10),
    "dense_bias": (10,),
}


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] from -1 (paper) to 1 (ink) and their labels, split into a training and a test set."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    @classmethod
    def load(cls, seed: int, dtype: Any) -> Digits:
        """Use a fifth as the test set, chosen by ``seed``."""
        table = np.loadtxt(DATA, delimiter=",", dtype=np.uint8)
        images = (table[:, :-1].reshape(-1, 1, 8, 8) / 8.0 - 1).astype(dtype)
        labels = table[:, -1].astype(np.int32)
        order = np.random.default_rng(seed).permutation(len(table))
        test, train = np.split(order, [len(table) // 5])
        return cls((images[train], labels[train]), (images[test], labels[test]))


@dataclass(frozen=True)
class Place:
    """Position of this instance's replicas among all, and the division of a batch of about ``batch`` images."""

    instance: int
    instances: int
    local: int
    offset: int
    total: int
    micro_batch: int

    @classmethod
    def find(cls, batch: int) -> Place:
        total = popdist.getNumTotalReplicas()
        return cls(
            popdist.getInstanceIndex(),
            popdist.getNumInstances(),
            popdist.getNumLocalReplicas(),
            popdist.getReplicaIndexOffset(),
            total,
            max(1, round(batch / (ACCUMULATION * total))),
        )

    @property
    def batch(self) -> int:
        """Images per weight update, over all replicas."""
        return self.micro_batch * ACCUMULATION * self.total

    def mine(self, data: np.ndarray) -> np.ndarray:
        """The slice of step data [batches, accumulation, all replicas, ...] that the local replicas get."""
        return np.ascontiguousarray(data[:, :, self.offset : self.offset + self.local])


def first_weights(seed: int, dtype: Any) -> dict[str, np.ndarray]:
    """Normal values scaled by the number of inputs of each unit; biases start at 0."""
    random = np.random.default_rng(seed + 1)
    weights = {}
    for name, shape in WEIGHTS.items():
        inputs = shape[0] if len(shape) == 2 else np.prod(shape[1:])
        scale = np.sqrt(2 / inputs) if len(shape) > 1 else 0
        weights[name] = (random.standard_normal(shape) * scale).astype(dtype)
    return weights


def network(weights: Mapping[str, np.ndarray], images: int) -> tuple[bytes, dict[str, str]]:
    """The model for micro-batches of ``images``, and the ids of its tensors."""
    builder = popart.Builder()
    kind = str(builder_type(weights))
    x = builder.addInputTensor(popart.TensorInfo(kind, [images, 1, 8, 8]), debugContext="images")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [images]), debugContext="labels")
    w = {name: builder.addInitializedInputTensor(value, debugContext=name) for name, value in weights.items()}
    y = x
    for layer in ("conv1", "conv2"):
        y = builder.aiOnnx.conv([y, w[f"{layer}_weights"], w[f"{layer}_bias"]], pads=[1, 1, 1, 1])
        y = builder.aiOnnx.tanh([y])
        y = builder.aiOnnx.averagepool([y], kernel_shape=[2, 2], strides=[2, 2])
    y = builder.aiOnnx.gemm([builder.aiOnnx.flatten([y]), w["dense_weights"], w["dense_bias"]])
    probabilities = builder.aiOnnx.softmax([y])
    loss = builder.aiGraphcore.nllloss([probabilities, labels], popart.ReductionType.Mean)
    ids = {"images": x, "labels": labels, "probabilities": probabilities, "loss": loss}
    return builder.getModelProto(), ids


def builder_type(weights: Mapping[str, np.ndarray]) -> str:
    return popart.TensorInfo(weights["dense_weights"]).data_type()


def options(*, training: bool) -> popart.SessionOptions:
    """Replicas as given to the launcher; gradients are averaged over micro-batches and replicas."""
    opts = popart.SessionOptions()
    popdist_py.popart.configureSessionOptions(opts)
    opts.constantWeights = False
    if training:
        opts.enableGradientAccumulation = True
        opts.accumulationFactor = ACCUMULATION
        opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return opts


def optimizer(epoch: int, epochs: int, *, half: bool) -> popart.SGD:
    """Momentum 0.9; the learning rate decreases with each epoch."""
    return popart.SGD(
        {
            "defaultLearningRate": (0.2 * (1 - epoch / epochs), False),
            "defaultMomentum": (0.9, True),
            "lossScaling": (128.0 if half else 1.0, True),
        },
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    )


class Training:
    """The training session and its epochs."""

    def __init__(self, digits: Digits, place: Place, weights: Mapping[str, np.ndarray], args: argparse.Namespace):
        self.digits, self.place, self.args = digits, place, args
        self.steps = len(digits.train[1]) // place.batch
        self.device = popdist_py.popart.getDevice(1)
        model, self.ids = network(weights, place.micro_batch)
        self.session = popart.TrainingSession(
            model,
            popart.DataFlow(self.steps, [self.ids["loss"]], popart.AnchorReturnType("All")),
            self.ids["loss"],
            optimizer(0, args.epochs, half=args.half),
            self.device,
            userOptions=options(training=True),
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()
        self.anchors = self.session.initAnchorArrays()

    def epoch(self, epoch: int) -> float:
        """Train on every image once, except the last few that do not fill a batch; return the mean loss."""
        images, labels = self.digits.train
        order = np.random.default_rng((self.args.seed, epoch)).permutation(len(labels))
        order = order[: self.steps * self.place.batch]
        order = self.place.mine(order.reshape(self.steps, ACCUMULATION, self.place.total, self.place.micro_batch))
        inputs = {self.ids["images"]: images[order], self.ids["labels"]: labels[order]}
        self.session.updateOptimizerFromHost(optimizer(epoch, self.args.epochs, half=self.args.half))
        self.session.run(popart.PyStepIO(inputs, self.anchors))
        mine = self.anchors[self.ids["loss"]].reshape(self.steps, ACCUMULATION, self.place.local)
        return float(np.mean(np.concatenate(list(popdist.allGather(mine)), axis=2), dtype=np.float64))

    def weights(self) -> dict[str, np.ndarray]:
        """The current weights."""
        kind = np.float16 if self.args.half else np.float32
        weights = {name: np.empty(shape, kind) for name, shape in WEIGHTS.items()}
        self.session.weightsToHost()
        self.session.readWeights(popart.PyWeightsIO(weights))
        return weights


def count_correct(digits: Digits, place: Place, weights: Mapping[str, np.ndarray], device: popart.DeviceInfo) -> int:
    """Number of test images that are classified correctly; each is seen by exactly one replica."""
    images, labels = digits.test
    share = -(-len(labels) // place.total)
    model, ids = network(weights, share)
    session = popart.InferenceSession(
        model,
        popart.DataFlow(1, [ids["probabilities"]], popart.AnchorReturnType("All")),
        device,
        userOptions=options(training=False),
    )
    session.prepareDevice()
    session.weightsFromHost()
    padded = np.arange(share * place.total)
    mine = place.mine(padded.reshape(1, 1, place.total, share)).reshape(-1)
    real = mine < len(labels)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({ids["images"]: images[np.where(real, mine, 0)]}, anchors))
    answers = anchors[ids["probabilities"]].reshape(len(mine), 10).argmax(axis=1)
    correct, seen = popdist.allReduce(np.array([(answers[real] == labels[mine[real]]).sum(), real.sum()]))
    assert seen == len(labels)
    return int(correct)


class Report:
    """What instance 0 prints."""

    def __init__(self, place: Place) -> None:
        self.speaks = place.instance == 0

    def say(self, text: str = "") -> None:
        if self.speaks:
            print(text, flush=True)

    def epoch(self, epoch: int, epochs: int, loss: float, images_per_second: float) -> None:
        """Progress, loss and throughput of one epoch."""
        done = 20 * epoch // epochs
        bar = f"[{'#' * done}{'.' * (20 - done)}] {100 * epoch // epochs:3} %"
        self.say(f"{bar}   epoch {epoch:3} of {epochs}   loss {loss:7.4f}   {images_per_second:8,.0f} images/s")


def count(number: int, noun: str) -> str:
    """ "1 replica", "4 replicas"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def save(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the file completely or not at all."""
    content = io.BytesIO()
    np.savez(content, **weights)
    try:
        replace_file(path, content.getbuffer())
    except OSError as error:
        raise SystemExit(f"digits.py: --weights-out {path} could not be written: {error.strerror}") from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on hand-written digits.", allow_abbrev=False)
    parser.add_argument(
        "--epochs", type=at_least(1), default=30, metavar="N", help="passes over all images (default 30)"
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=0, metavar="N", help="seed of split, weights and order (default 0)"
    )
    parser.add_argument(
        "--batch", type=at_least(1), default=64, metavar="N", help="approximate images per update (default 64)"
    )
    parser.add_argument("--half", action="store_true", help="store everything as FLOAT16")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="save a checkpoint here after each epoch, and continue from the last",
    )
    parser.add_argument("--weights-out", type=Path, metavar="FILE.npz", help="write the final weights here")
    args = parser.parse_args()
    if args.weights_out is not None and (fault := unwritable(args.weights_out)):
        parser.error(f"--weights-out {args.weights_out!s}: {fault}")
    return args


def unwritable(path: Path) -> str:
    """Why ``path`` cannot be written; empty if it can."""
    if path.is_dir():
        return "this is a directory; give the name of a file"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}; make it first"
    if not os.access(path.parent, os.W_OK):
        return f"the directory {path.parent} is not writable; choose another"
    return ""


def at_least(least: int) -> Any:
    """A whole number of at least ``least``."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} was given; give a whole number of at least {least}")
        return int(text)

    return number


def run(args: argparse.Namespace) -> None:
    popdist.init()
    place = Place.find(args.batch)
    report = Report(place)
    digits = Digits.load(args.seed, np.float16 if args.half else np.float32)
    if place.batch > len(digits.train[1]):
        raise SystemExit(f"digits.py: --batch {args.batch} is more than the {len(digits.train[1])} training images")
    report.say(
        f"UCI digits: {len(digits.train[1]):,} training, {len(digits.test[1])} test images. Each update: "
        f"{place.batch} images = {count(place.total, 'replica')} x {ACCUMULATION} micro-batches x {place.micro_batch}"
    )
    report.say("compiling (some seconds the first time on a machine; kernels are cached)")
    start = time.perf_counter()
    training = Training(digits, place, first_weights(args.seed, digits.train[0].dtype), args)
    report.say(f"compiled in {time.perf_counter() - start:.1f} s")
    with Checkpoints(args.checkpoints) if args.checkpoints else nullcontext() as checkpoints:
        first = checkpoints.restore(training.session).step if checkpoints else 0
        if first:
            report.say(f"resuming after epoch {first}, from {args.checkpoints}")
        seconds = 0.0
        for epoch in range(first, args.epochs):
            start = time.perf_counter()
            loss = training.epoch(epoch)
            if checkpoints:
                checkpoints.save(training.session, epoch + 1)
            spent = time.perf_counter() - start
            seconds += spent
            report.epoch(epoch + 1, args.epochs, loss, training.steps * place.batch / spent)
    weights = training.weights()
    correct, tested = count_correct(digits, place, weights, training.device), len(digits.test[1])
    report.say(f"test accuracy {100 * correct / tested:.2f} % ({correct} of {tested} test images)")
    if first < args.epochs:
        report_rates(report, training, place, args.epochs - first, seconds)
    else:
        report.say(
            f"throughput    none: all {count(args.epochs, 'epoch')} were trained before ({first} in the checkpoint)"
        )
    if args.weights_out and place.instance == 0:
        save(weights, args.weights_out)
        report.say(f"weights       {args.weights_out}")


def report_rates(report: Report, training: Training, place: Place, epochs: int, seconds: float) -> None:
    """Say how fast the epochs of this run were, and what they spent their time on."""
    images = epochs * training.steps * place.batch
    report.say(
        f"throughput    {images / seconds:,.0f} images/s over {count(place.total, 'replica')} in "
        f"{count(place.instances, 'instance')} (wall time: {seconds:.2f} s)"
    )
    wall = training.session.wallSeconds()
    parts = [wall["compute"], wall["collectives"], wall["host I/O"]]
    shares = 100 * popdist.allReduce(np.array(parts) / seconds, op="mean")
    report.say(
        f"wall time     compute {shares[0]:.0f} %, collectives {shares[1]:.0f} %, host I/O {shares[2]:.0f} %, "
        f"other {100 - shares.sum():.0f} %"
    )


def main() -> None:
    args = arguments()
    try:
        run(args)
        sys.stdout.flush()
    except (popart.popart_exception, popdist.PopdistError) as error:
        raise SystemExit(f"digits.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:  # the reader of the output is gone, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(f"digits.py: {error.strerror}") from None


if __name__ == "__main__":
    main()
