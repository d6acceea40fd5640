"""Training steps per second of TensorFlow programs on the emulator against plain TensorFlow on the CPU.

    python benchmarks/tensorflow.py [--quick] [--json [FILE]]

Both run in one process with one thread and take turns: the loop of a program is compared with `session.run` in a
loop, on data that lie in memory; `fit` of Keras models with that of plain Keras. The two-stage pipeline has a thread
for each of its IPUs. Under `poprun-py` two instances train the Keras models on a batch each: their steps are added.
The import and the passes of ResNet-50's train step are timed, and an infeed against its data set alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

# This file has the name of the package that it measures: packages are looked for first in the other folders.
sys.path.sort(key=lambda folder: Path(folder).resolve() == Path(__file__).resolve().parent)
os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import numpy as np
from support.ending import finished
from support.extras import need

need("tensorflow.python", extra="tensorflow")

import ipu_emu.tensorflow.install  # noqa: F401

# isort: split
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from support.tensorflow_networks import NETS, Loss, cross_entropy, keras_nets, weights
from tensorflow.python import ipu

from ipu_emu.tensorflow.api.distributed.popdist_tensorflow import set_ipu_config

#: What a turn calls, and how many steps each call makes.
Contender = tuple[Callable[[], object], int]

ROUNDS = 10

#: The least time of a loop: it takes the weights in and out once.
LOOP_SECONDS = 0.15


def on_cpu(loss: Loss, x: Any, y: Any, ending: ExitStack) -> Contender:
    """Steps of plain TensorFlow with one thread, until ``ending`` ends."""
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Graph().as_default() as graph:
        session = tf.Session(config=config, graph=graph)
        ending.callback(session.close)
        train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss(tf.constant(x), tf.constant(y)))
        session.run(tf.global_variables_initializer())
    return lambda: session.run(train), 1


def on_ipu(
    x: Any, y: Any, steps: int, program: Callable[[Any, Any], Any], ending: ExitStack, ipus: int = 1
) -> Contender:
    """``program`` of an infeed and an outfeed, a call of which makes ``steps`` steps."""
    with tf.Graph().as_default() as graph:
        session = tf.Session(graph=graph)
        ending.callback(session.close)
        configure(ipus)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((x, y.astype(np.int32))).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(lambda: program(infeed, outfeed))
        stop = infeed.deleter
        ending.callback(lambda: session.run(stop))
        session.run([tf.global_variables_initializer(), infeed.initializer])
    return lambda: session.run(operation), steps


def looped(loss: Loss, x: Any, y: Any, ending: ExitStack, steps: int) -> Contender:
    """A loop of ``steps`` training steps."""

    def program(infeed: Any, outfeed: Any) -> Any:
        def body(x: Any, y: Any) -> Any:
            value = loss(x, y)
            return outfeed.enqueue(value), tf.train.MomentumOptimizer(0.01, 0.9).minimize(value)

        return ipu.loops.repeat(steps, body, infeed_queue=infeed)

    return on_ipu(x, y, steps, program, ending)


def pipelined(ending: ExitStack, count: int = 16) -> tuple[Contender, Contender]:
    """Mini-batches of plain TensorFlow and of a pipeline of two stages, which have equal work.

    The first layer has no gradient for its input, and so more columns. The pipeline updates its weights once for
    ``count`` mini-batches, TensorFlow after each.
    """
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 768)).astype(np.float32), random.integers(0, 10, 64)

    def layers(x: Any, name: str) -> Any:
        for number in range(2):
            x = tf.nn.relu(tf.matmul(x, weights(f"{name}{number}", int(x.shape[1]), 512)))
        return x

    def first(x: Any, y: Any) -> Any:
        return layers(x, "first"), y

    def second(x: Any, y: Any) -> Any:
        return cross_entropy(tf.matmul(layers(x, "second"), weights("out", 512, 10)), y)

    def optimizer(loss: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.MomentumOptimizer(0.01, 0.9), loss)

    def program(infeed: Any, outfeed: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, second], gradient_accumulation_count=count, repeat_count=2, infeed_queue=infeed,
            outfeed_queue=outfeed, optimizer_function=optimizer,
        )  # fmt: skip

    plain = on_cpu(lambda x, y: second(*first(x, y)), x, y, ending)
    return plain, on_ipu(x, y, 2 * count, program, ending, ipus=2)


def fitted(make: Callable[[], Any], x: Any, scope: Any, steps: int = 20) -> Contender:
    """``fit`` of a model that is made in ``scope``: Adam, a metric, ``steps`` steps in an execution."""
    y = np.random.default_rng(0).integers(0, 10, len(x)).astype(np.int32)
    with scope:
        model = make()
        model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=steps)
        dataset = tf2.data.Dataset.from_tensors((x, y)).repeat()
    return lambda: model.fit(dataset, steps_per_epoch=steps, verbose=0), steps


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def per_second(contenders: list[Contender], seconds: float) -> list[float]:
    """Steps per second of each contender: its best turn of ``ROUNDS``, after a warm-up."""
    best = [0.0] * len(contenders)
    for call, _ in contenders:
        call()
    for _ in range(ROUNDS):
        for number, (call, steps) in enumerate(contenders):
            start, done = perf_counter(), 0
            while perf_counter() - start < seconds / ROUNDS:
                call()
                done += steps
            best[number] = max(best[number], done / (perf_counter() - start))
    return best


def row(name: str, peer: str, plain: float, own: float) -> dict[str, float]:
    """Print the steps per second of both, and return them with their ratio."""
    print(f"{name:<36} {peer:<10} {plain:8.1f}  emulator {own:8.1f} steps/s  ratio {own / plain:.2f}", flush=True)
    return {peer: plain, "emulator": own, "ratio": own / plain}


def graph_rows(seconds: float) -> dict[str, dict[str, float]]:
    """The nets of graph mode in loops, and a pipeline."""
    rows = {}
    for name, (loss, x, y) in NETS.items():
        with ExitStack() as ending:
            plain, count = on_cpu(loss, x, y, ending)
            plain()
            start = perf_counter()
            plain()
            steps = max(20, int(LOOP_SECONDS / (perf_counter() - start)))
            pair = [(plain, count), looped(loss, x, y, ending, steps)]
            rows[name] = row(name, "TensorFlow", *per_second(pair, seconds))
    with ExitStack() as ending:
        name = "two-stage pipeline"
        rows[name] = row(name, "TensorFlow", *per_second(list(pipelined(ending)), seconds))
    return rows


def keras_rows(seconds: float) -> dict[str, dict[str, float]]:
    """``fit`` of Keras models in one process, and in two instances."""
    rows = {}
    for name, (make, x) in keras_nets().items():
        configure(1)
        scope = ipu.ipu_strategy.IPUStrategy().scope()
        pair = [fitted(make, x, nullcontext()), fitted(make, x, scope)]
        rows[name] = row(name, "Keras", *per_second(pair, seconds))
    for name, both in two_instances(seconds).items():
        two = f"{name}, two instances"
        rows[two] = row(two, "Keras", rows[name]["Keras"], both)
    return rows


def two_instances(seconds: float) -> dict[str, float]:
    """The steps per second of two instances, added up, by the name of the model."""
    launcher = [str(Path(sys.executable).with_name("poprun-py")), "--num-instances", "2", "--num-replicas", "2"]
    done = finished(
        [*launcher, sys.executable, __file__, "--instance", str(seconds)], timeout=300, env=dict(os.environ)
    )
    results = [json.loads(line) for line in re.findall("{.*}", done.stdout)]
    if done.returncode or len(results) != 2:
        raise SystemExit(f"tensorflow.py: two instances failed:\n{done.stdout}{done.stderr}")
    return {name: results[0][name] + results[1][name] for name in results[0]}


def instance(seconds: float) -> None:
    """Print the steps per second of this instance of a job; all instances make as many steps."""
    best = {}
    for name, (make, x) in keras_nets().items():
        config = ipu.config.IPUConfig()
        set_ipu_config(config, ipus_per_replica=1)
        call, steps = fitted(make, x, ipu.ipu_strategy.IPUStrategy().scope())
        call()
        start = perf_counter()
        call()
        calls = max(int(np.ceil(seconds / ROUNDS / (perf_counter() - start))), 1)
        calls = int(ipu.distributed.allreduce(np.array(calls), "SUM", name)) // 2
        rates = []
        for _ in range(ROUNDS):
            start = perf_counter()
            for _ in range(calls):
                call()
            rates.append(calls * steps / (perf_counter() - start))
        best[name] = max(rates)
    print(json.dumps(best), flush=True)


def resnet50_seconds() -> dict[str, float]:
    """Seconds to trace, import and compile the train step of ResNet-50."""
    from tf_keras.applications import ResNet50

    from ipu_emu.tensorflow.run.compiling import compile_section
    from ipu_emu.tensorflow.run.program import Program
    from ipu_emu.tensorflow.trace.function_trace import FunctionTrace

    configure(1)
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [2, 224, 224, 3]), tf.placeholder(tf.int32, [2])
        trace = FunctionTrace("resnet50")

        def step(x: Any, y: Any) -> Any:
            logits = ResNet50(weights=None, classifier_activation=None)(x, training=True)
            value = cross_entropy(logits, y)
            return value, tf.train.MomentumOptimizer(0.01, 0.9).minimize(value)

        start = perf_counter()
        value, update = trace.call(step, [x, y])
        traced = perf_counter()
        program = Program(trace, [value], [update])
        imported = program.imported()
        ready = perf_counter()
        for section in imported:
            compile_section(section, program.share)
        return {"trace": traced - start, "import": ready - traced, "compile": perf_counter() - ready}


def infeed_share(seconds: float) -> float:
    """Elements per second of an infeed over those of its data set alone."""
    from tensorflow.python.eager import context

    def dataset() -> Any:
        return tf.data.Dataset.range(10**9).map(lambda v: tf.random.stateless_uniform([64, 256], [0, v])).prefetch(8)

    with context.eager_mode():
        elements = iter(dataset())
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset())
        queue._start(dataset())
        alone, fed = per_second([(lambda: next(elements).numpy(), 1), (queue.next_element, 1)], seconds)
        queue.stop()
    return fed / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="half a second for each number instead of ten")
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="write the numbers to FILE, or print them"
    )
    parser.add_argument("--instance", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tf2.config.threading.set_intra_op_parallelism_threads(1)
    tf2.config.threading.set_inter_op_parallelism_threads(1)
    if options.instance is not None:
        instance(options.instance)
        return
    seconds = 0.6 if options.quick else 10.0
    results: dict[str, Any] = graph_rows(seconds) | keras_rows(seconds)
    results["ResNet-50"] = resnet50_seconds()
    print("ResNet-50's step: " + ", ".join(f"{name} {value:.2f} s" for name, value in results["ResNet-50"].items()))
    results["infeed"] = infeed_share(seconds)
    print(f"infeed against its data set alone: {results['infeed']:.2f}")
    if options.json == "-":
        print(json.dumps(results, indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
