"""Train a network as a pipeline: two stages of layers, each on its own IPU, which work at the same time.

    python examples/pipeline.py                             1 replica of 2 IPUs
    python examples/pipeline.py --schedule interleaved
    python examples/pipeline.py --plain                     the same network on one IPU, with the same bits
    poprun-py --num-instances 2 --num-replicas 2 --ipus-per-replica 2 python examples/pipeline.py

An update takes 8 micro-batches: while the second stage computes the gradients of one, the first computes the next.
The network learns the sine of the sum of its inputs. The last line is a digest of its weights.
"""

from __future__ import annotations

import argparse
from hashlib import sha256
from typing import Any

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart

BATCH, INPUTS, WIDTH, MICRO_BATCHES, STEPS = 64, 4, 128, 8, 30


class Network:
    """Layers with residual connections: the first half in stage 0 on IPU 0, the others in stage 1 on IPU 1."""

    def __init__(self) -> None:
        self.builder, self.random = popart.Builder(), np.random.default_rng(1)
        self.weights: dict[str, np.ndarray] = {}
        self.x = self.builder.addInputTensor("FLOAT", [BATCH, INPUTS], "x")
        self.wanted = self.builder.addInputTensor("FLOAT", [BATCH, 1], "wanted")
        ops = self.builder.aiOnnx
        with self.builder.virtualGraph(0), self.builder.pipelineStage(0):
            y = ops.tanh([self.layer(self.x, "first", INPUTS, WIDTH)])
            for number in range(3):
                y = ops.add([y, ops.relu([self.layer(y, f"layer{number}", WIDTH, WIDTH)])])
        with self.builder.virtualGraph(1), self.builder.pipelineStage(1):
            for number in range(3, 6):
                y = ops.add([y, ops.relu([self.layer(y, f"layer{number}", WIDTH, WIDTH)])])
            error = ops.sub([self.layer(y, "last", WIDTH, 1), self.wanted])
            self.loss = self.builder.aiGraphcore.identityloss([ops.mul([error, error])])

    def layer(self, x: str, name: str, inputs: int, outputs: int) -> str:
        matrix = self.random.standard_normal((inputs, outputs)) / np.sqrt(4 * inputs)
        y: str = self.builder.aiOnnx.gemm(
            [x, self.weight(matrix, name), self.weight(np.zeros(outputs), f"{name}/bias")]
        )
        return y

    def weight(self, value: np.ndarray, name: str) -> str:
        self.weights[name] = value.astype(np.float32)
        id: str = self.builder.addInitializedInputTensor(self.weights[name], name)
        return id


def session_of(net: Network, *, plain: bool, schedule: str) -> Any:
    opts = popart.SessionOptions()
    if popdist.isPopdistEnvSet():
        popdist_py.popart.configureSessionOptions(opts)
    opts.enableGradientAccumulation, opts.accumulationFactor = True, MICRO_BATCHES
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    if not plain:
        opts.virtualGraphMode, opts.enablePipelining = popart.VirtualGraphMode.Manual, True
        opts.pipelineSchedule = schedule
    device = popart.DeviceManager().acquireAvailableDevice((1 if plain else 2) * opts.replicatedGraphCount)
    flow = popart.DataFlow(1, {net.loss: popart.AnchorReturnType("All")})
    optimizer = popart.Adam({"defaultLearningRate": (0.003, False)})
    return popart.TrainingSession(net.builder.getModelProto(), flow, net.loss, optimizer, device, userOptions=opts)


def batch(net: Network, step: int) -> dict[str, np.ndarray]:
    """One batch of this instance, [micro-batches, batch, ...]."""
    random = np.random.default_rng((step, popdist.getInstanceIndex()))
    x = random.uniform(-1, 1, (MICRO_BATCHES, BATCH, INPUTS)).astype(np.float32)
    return {net.x: x, net.wanted: np.sin(x.sum(axis=2, keepdims=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a network as a pipeline of two IPUs.")
    parser.add_argument("--plain", action="store_true", help="use one IPU and no pipeline")
    parser.add_argument("--schedule", default="popart", choices=["popart", "grouped", "interleaved", "sequential"])
    args = parser.parse_args()
    popdist.init()
    net = Network()
    session = session_of(net, plain=args.plain, schedule=args.schedule)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for step in range(STEPS):
        session.run(popart.PyStepIO(batch(net, step), anchors))
        if step in (0, STEPS - 1):
            print(f"update {step + 1}: loss {anchors[net.loss].mean():.4f}")
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(net.weights))
    print("weights", sha256(b"".join(value.tobytes() for value in net.weights.values())).hexdigest()[:16])


if __name__ == "__main__":
    main()
