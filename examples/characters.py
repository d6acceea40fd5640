"""Train a small transformer to write Python, character by character, on the source code of the standard library.

    python examples/characters.py
    python examples/characters.py --replicas 2 --steps 60
    poprun-py --num-instances 2 --num-replicas 2 python examples/characters.py

A step is ten weight updates of Adam. At the end instance 0 lets the model continue the text "def ".
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart

WIDTH, HEADS, CONTEXT, BATCH, BATCHES = 48, 4, 32, 8, 10
ALPHABET = [chr(code) for code in range(32, 127)] + ["\n"]


def corpus() -> np.ndarray:
    """The characters of some modules as numbers."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = ("argparse", "ast", "calendar", "difflib", "inspect", "pathlib", "textwrap", "typing")
    text = "".join((folder / f"{name}.py").read_text() for name in names if (folder / f"{name}.py").exists())
    table = {character: index for index, character in enumerate(ALPHABET)}
    return np.array([table[character] for character in text if character in table], np.int32)


class Model:
    """One layer of causal self-attention and one of feed-forward, with dropout in training."""

    def __init__(self, batch: int, *, dropout: float) -> None:
        self.builder, self.random, self.dropout = popart.Builder(), np.random.default_rng(0), dropout
        self.x = self.builder.addInputTensor("INT32", [batch, CONTEXT], debugContext="characters")
        self.labels = self.builder.addInputTensor("INT32", [batch, CONTEXT], debugContext="next_characters")
        a = self.builder.aiOnnx
        place = self.weight("place", CONTEXT, WIDTH, scale=0.1)
        h = a.add([a.gather([self.weight("characters_table", len(ALPHABET), WIDTH, scale=0.3), self.x]), place])
        h = a.add([h, self.dropped(self.attention(h, batch))])
        f = a.relu([a.matmul([h, self.weight("inner", WIDTH, 4 * WIDTH)])])
        h = a.add([h, self.dropped(a.matmul([f, self.weight("outer", 4 * WIDTH, WIDTH)]))])
        logits = a.matmul([h, self.weight("head", WIDTH, len(ALPHABET))])
        self.probabilities = a.softmax([logits], 2)
        self.loss = self.builder.aiGraphcore.nllloss([self.probabilities, self.labels])

    def weight(self, name: str, rows: int, columns: int, *, scale: float | None = None) -> str:
        values = self.random.standard_normal((rows, columns)) * (scale or rows**-0.5)
        return self.builder.addInitializedInputTensor(values.astype(np.float32), name)

    def dropped(self, id: str) -> str:
        return self.builder.aiOnnx.dropout([id], 1, self.dropout)[0] if self.dropout else id

    def attention(self, h: str, batch: int) -> str:
        a = self.builder.aiOnnx

        def heads(name: str, perm: list[int]) -> str:
            projected = a.matmul([h, self.weight(name, WIDTH, WIDTH)])
            split = self.builder.reshape_const(a, [projected], [batch, CONTEXT, HEADS, WIDTH // HEADS])
            return a.transpose([split], perm)

        scores = a.matmul([heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])])
        scores = self.builder.aiGraphcore.scale([scores], (WIDTH // HEADS) ** -0.5)
        future = a.constant(np.triu(np.full((CONTEXT, CONTEXT), -1e4, np.float32), 1))
        mixed = a.matmul([a.softmax([a.add([scores, future])], 3), heads("value", [0, 2, 1, 3])])
        joined = self.builder.reshape_const(a, [a.transpose([mixed], [0, 2, 1, 3])], [batch, CONTEXT, WIDTH])
        return a.matmul([joined, self.weight("joined", WIDTH, WIDTH)])


def windows(text: np.ndarray, step: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Characters and the characters that follow them, each [batches, all replicas, micro-batch, context]."""
    shape = (BATCHES, total, BATCH)
    starts = np.random.default_rng(step).integers(0, len(text) - CONTEXT - 1, shape)
    picked = starts[..., None] + np.arange(CONTEXT)
    return text[picked], text[picked + 1]


def train(args: argparse.Namespace, text: np.ndarray) -> tuple[popart.TrainingSession, Model]:
    model, opts = Model(BATCH, dropout=0.1), popart.SessionOptions()
    if popdist.isPopdistEnvSet():
        popdist_py.popart.configureSessionOptions(opts)
    elif args.replicas > 1:
        opts.enableReplicatedGraphs, opts.replicatedGraphCount = True, args.replicas
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    local = opts.replicatedGraphCount
    total, first = max(opts.globalReplicationFactor, local), opts.globalReplicaOffset
    flow = popart.DataFlow(BATCHES, {model.loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        model.builder.getModelProto(),
        flow,
        model.loss,
        popart.Adam({"defaultLearningRate": (0.003, False)}),
        popart.DeviceManager().acquireAvailableDevice(local),
        userOptions=opts,
    )
    session.prepareDevice()
    session.setRandomSeed(7)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for step in range(args.steps):
        data = [np.ascontiguousarray(part[:, first : first + local]) for part in windows(text, step, total)]
        session.run(popart.PyStepIO(dict(zip((model.x, model.labels), data, strict=True)), anchors))
        if step % 10 == 9 or step + 1 == args.steps:
            print(f"updates {10 * step + 10}: loss {anchors[model.loss].mean():.3f} per character", flush=True)
    return session, model


def continue_text(trained: popart.TrainingSession, start: str, count: int) -> str:
    """Continue ``start`` with the likeliest characters, drawn at random."""
    model, opts = Model(1, dropout=0.0), popart.SessionOptions()
    opts.constantWeights = False
    flow = popart.DataFlow(1, {model.probabilities: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(model.builder.getModelProto(), flow, device, userOptions=opts)
    session.prepareDevice()
    ids = model.builder.getTrainableTensorIds()
    weights = {id: np.zeros(model.builder.getTensorShape(id), np.float32) for id in ids}
    trained.weightsToHost()
    trained.readWeights(popart.PyWeightsIO(weights))
    session.writeWeights(popart.PyWeightsIO(weights))
    anchors, random = session.initAnchorArrays(), np.random.default_rng(0)
    text = [ALPHABET.index(character) for character in start]
    for _ in range(count):
        recent = text[-CONTEXT:]
        window = np.zeros((1, CONTEXT), np.int32)
        window[0, : len(recent)] = recent
        session.run(popart.PyStepIO({model.x: window}, anchors))
        share = anchors[model.probabilities][0, len(recent) - 1].astype(np.float64) ** 2
        text.append(int(random.choice(len(ALPHABET), p=share / share.sum())))
    return "".join(ALPHABET[index] for index in text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="steps of ten updates")
    parser.add_argument("--replicas", type=int, default=1, help="local replicas, if there is no launcher")
    args = parser.parse_args()
    popdist.init()
    session, _ = train(args, corpus())
    if popdist.getInstanceIndex() == 0:
        print(continue_text(session, "def ", 120))


if __name__ == "__main__":
    main()
