"""Train a multi-layer perceptron on hand-written digits, in the style of PopART's MNIST example.

    python examples/mnist.py
    python examples/mnist.py --replicas 2 --accumulation 2 --epochs 5

The images are the 8 x 8 digits in ``data``. Training and testing are two sessions; the weights are passed from one to
the other in a model file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import ipu_emu.popart as popart

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
CLASSES = 10


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(training images, their labels, test images, their labels); images are [n, 64] from -1 to 1."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.uint8)[np.random.default_rng(0).permutation(1797)]
    images, labels = (table[:, :-1] / 8.0 - 1).astype(np.float32), table[:, -1].astype(np.int32)
    return images[360:], labels[360:], images[:360], labels[:360]


def create_model(batch: int) -> tuple[bytes, str, str, str, str]:
    """(model, image id, label id, probabilities id, loss id)"""
    builder, random = popart.Builder(), np.random.default_rng(1)
    images = builder.addInputTensor(popart.TensorInfo("FLOAT", [batch, 64]), "images")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [batch]), "labels")
    hidden = images
    for layer, (rows, columns) in enumerate(((64, 96), (96, CLASSES))):
        first = (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        w = builder.addInitializedInputTensor(first, f"w{layer}")
        b = builder.addInitializedInputTensor(np.zeros(columns, np.float32), f"b{layer}")
        hidden = builder.aiOnnx.gemm([hidden, w, b], debugContext=f"dense{layer}")
        if columns != CLASSES:
            hidden = builder.aiOnnx.relu([hidden])
    probabilities = builder.aiOnnx.softmax([hidden])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    builder.addOutputTensor(probabilities)
    return builder.getModelProto(), images, labels, probabilities, loss


def options(args: argparse.Namespace, *, training: bool) -> popart.SessionOptions:
    opts = popart.SessionOptions()
    opts.enableReplicatedGraphs = args.replicas > 1
    opts.replicatedGraphCount = args.replicas
    if training and args.accumulation > 1:
        opts.enableGradientAccumulation = True
        opts.accumulationFactor = args.accumulation
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return opts


def train(args: argparse.Namespace, data: tuple[np.ndarray, np.ndarray], file: str) -> None:
    """Train, print the mean loss of every epoch, and save the model."""
    model, images, labels, _, loss = create_model(args.batch)
    per_step = args.batch * args.accumulation * args.replicas
    flow = popart.DataFlow(len(data[1]) // per_step, {loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
    with popart.DeviceManager().acquireAvailableDevice(args.replicas) as device:
        session = popart.TrainingSession(
            model, flow, loss, optimizer, device, userOptions=options(args, training=True)
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors, used = session.initAnchorArrays(), flow.batchesPerStep() * per_step
        for epoch in range(args.epochs):
            order = np.random.default_rng(epoch).permutation(len(data[1]))[:used]
            session.run(popart.PyStepIO({images: data[0][order], labels: data[1][order]}, anchors))
            print(f"epoch {epoch}: mean loss {anchors[loss].mean():.4f}")
            optimizer = popart.SGD({"defaultLearningRate": (0.1 * 0.8**epoch, False), "defaultMomentum": (0.9, True)})
            session.updateOptimizerFromHost(optimizer)
        session.modelToHost(file)


def test(args: argparse.Namespace, data: tuple[np.ndarray, np.ndarray], file: str) -> float:
    """The fraction of test images that are classified correctly."""
    model, images, _, probabilities, _ = create_model(args.batch)
    batches = len(data[1]) // (args.batch * args.replicas)
    flow = popart.DataFlow(batches, {probabilities: popart.AnchorReturnType("All")})
    opts = options(args, training=False)
    opts.constantWeights = False
    with popart.DeviceManager().acquireAvailableDevice(args.replicas) as device:
        session = popart.InferenceSession(model, flow, device, userOptions=opts)
        session.prepareDevice()
        session.resetHostWeights(file, True)
        session.weightsFromHost()
        anchors, used = session.initAnchorArrays(), batches * args.batch * args.replicas
        session.run(popart.PyStepIO({images: data[0][:used]}, anchors))
    classes = anchors[probabilities].reshape(used, CLASSES).argmax(axis=1)
    return float((classes == data[1][:used]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16, help="images per micro-batch and replica")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    train_images, train_labels, test_images, test_labels = load()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.onnx")
        train(args, (train_images, train_labels), file)
        print(f"recognised {test(args, (test_images, test_labels), file):.1%} of the test images")


if __name__ == "__main__":
    main()
