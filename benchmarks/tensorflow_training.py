"""Training steps per second of TensorFlow programs on the emulator against plain TensorFlow on the CPU.

    python benchmarks/tensorflow_training.py [--quick] [--json FILE]

Both run in one process with one thread: the loop of a program is compared with `session.run` in a loop, on data that
lie in memory. The two-stage pipeline has a thread for each of its IPUs. The import and the passes of ResNet-50's
train step are timed, and an infeed against its data set alone. `fit` of Keras models is compared with plain Keras.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import numpy as np
from support.extras import need

need("tensorflow", extra="tensorflow")

import ipu_emu.tensorflow.install  # noqa: F401

# isort: split
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

Loss = Callable[[Any, Any], Any]


def weights(name: str, *shape: int) -> Any:
    values = np.random.default_rng(len(name)).normal(0, (shape[0] if len(shape) < 3 else 20) ** -0.5, shape)
    return tf.get_variable(name, initializer=values.astype(np.float32), use_resource=True)


def mlp(x: Any, y: Any) -> Any:
    for number, (rows, columns) in enumerate(((256, 512), (512, 512))):
        x = tf.nn.relu(tf.matmul(x, weights(f"w{number}", rows, columns)))
    return cross_entropy(tf.matmul(x, weights("out", 512, 10)), y)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def resnet8(x: Any, y: Any) -> Any:
    def conv(x: Any, channels: int, stride: int, name: str) -> Any:
        x = tf.nn.conv2d(x, weights(name, 3, 3, int(x.shape[3]), channels), stride, "SAME")
        scale, offset = (weights(f"{name}/{kind}", channels) for kind in ("scale", "offset"))
        return tf.nn.fused_batch_norm(x, scale, offset)[0]

    x = tf.nn.relu(conv(x, 16, 1, "stem"))
    for number, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        short = x if stride == 1 else tf.nn.conv2d(
            x, weights(f"short{number}", 1, 1, int(x.shape[3]), channels), stride, "SAME"
        )  # fmt: skip
        inner = tf.nn.relu(conv(x, channels, stride, f"a{number}"))
        x = tf.nn.relu(conv(inner, channels, 1, f"b{number}") + short)
    return cross_entropy(tf.matmul(tf.reduce_mean(x, [1, 2]), weights("out", 64, 10)), y)


def transformer(x: Any, y: Any) -> Any:
    batch, length, width, heads = 8, 64, 128, 4
    h = tf.gather(weights("embedding", 1000, width), x)

    def split(z: Any) -> Any:
        return tf.transpose(tf.reshape(z, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    def norm(z: Any, name: str) -> Any:
        mean, variance = tf.nn.moments(z, [-1], keepdims=True)
        return (z - mean) * tf.math.rsqrt(variance + 1e-5) * weights(f"{name}/g", width) + weights(f"{name}/b", width)

    def dense(z: Any, name: str, columns: int) -> Any:
        rows = int(z.shape[-1])
        flat = tf.matmul(tf.reshape(z, [-1, rows]), weights(name, rows, columns))
        return tf.reshape(flat, [batch, length, columns])

    for number in range(2):
        z = norm(h, f"n{number}")
        q, k, v = (split(dense(z, f"{name}{number}", width)) for name in "qkv")
        scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (width // heads) ** -0.5)
        joined = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [batch, length, width])
        h = h + dense(joined, f"o{number}", width)
        h = h + dense(tf.nn.relu(dense(norm(h, f"m{number}"), f"up{number}", 4 * width)), f"down{number}", width)
    return cross_entropy(tf.reshape(dense(h, "head", 1000), [-1, 1000]), tf.reshape(y, [-1]))


RANDOM = np.random.default_rng(0)
NETS: dict[str, tuple[Loss, Any, Any]] = {
    "MLP, batch 64": (mlp, RANDOM.normal(size=(64, 256)).astype(np.float32), RANDOM.integers(0, 10, 64)),
    "ResNet-8, batch 16": (
        resnet8,
        RANDOM.normal(size=(16, 32, 32, 3)).astype(np.float32),
        RANDOM.integers(0, 10, 16),
    ),
    "transformer, 8 x 64": (transformer, RANDOM.integers(0, 1000, (8, 64)), RANDOM.integers(0, 1000, (8, 64))),
}


def on_cpu(loss: Loss, x: Any, y: Any, seconds: float) -> float:
    """Steps per second of plain TensorFlow with one thread."""
    one = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), tf.Session(config=one) as session:
        train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss(tf.constant(x), tf.constant(y)))
        session.run(tf.global_variables_initializer())
        return per_second(lambda: session.run(train), 1, seconds)


def on_ipu(loss: Loss, x: Any, y: Any, seconds: float, steps: int = 20) -> float:
    """Steps per second of a program that runs ``steps`` steps."""
    with tf.Graph().as_default(), tf.Session() as session:
        configure(1)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((x, y.astype(np.int32))).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x: Any, y: Any) -> Any:
            value = loss(x, y)
            return outfeed.enqueue(value), tf.train.MomentumOptimizer(0.01, 0.9).minimize(value)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            made = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, body, infeed_queue=infeed))
        session.run([tf.global_variables_initializer(), infeed.initializer])
        return per_second(lambda: session.run(made), steps, seconds)


def pipelined(seconds: float, count: int = 16) -> tuple[float, float]:
    """Mini-batches per second of plain TensorFlow and of a pipeline of two stages, which have equal work.

    The pipeline updates its weights once for ``count`` mini-batches, TensorFlow after each.
    """
    x, y = RANDOM.normal(size=(64, 512)).astype(np.float32), RANDOM.integers(0, 10, 64)

    def layers(x: Any, name: str) -> Any:
        for number in range(2):
            x = tf.nn.relu(tf.matmul(x, weights(f"{name}{number}", 512, 512)))
        return x

    def first(x: Any, y: Any) -> Any:
        return layers(x, "first"), y

    def second(x: Any, y: Any) -> Any:
        return cross_entropy(tf.matmul(layers(x, "second"), weights("out", 512, 10)), y)

    plain = on_cpu(lambda x, y: second(*first(x, y)), x, y, seconds)
    with tf.Graph().as_default(), tf.Session() as session:
        configure(2)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((x, y.astype(np.int32))).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def optimizer(loss: Any) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.MomentumOptimizer(0.01, 0.9), loss)

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(
                [first, second], gradient_accumulation_count=count, repeat_count=2, infeed_queue=infeed,
                outfeed_queue=outfeed, optimizer_function=optimizer,
            )  # fmt: skip

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            made = ipu.ipu_compiler.compile(program)
        session.run([tf.global_variables_initializer(), infeed.initializer])
        return plain, per_second(lambda: session.run(made), 2 * count, seconds)


def keras_nets() -> dict[str, tuple[Callable[[], Any], Any]]:
    """Models of Keras by name, each with a batch."""
    import tf_keras as keras

    layers = keras.layers

    def mlp() -> Any:
        return keras.Sequential([layers.Dense(512, "relu"), layers.Dense(512, "relu"), layers.Dense(10, "softmax")])

    def cnn() -> Any:
        blocks: list[Any] = []
        for channels, stride in ((16, 1), (32, 2), (64, 2)):
            blocks.append(layers.Conv2D(channels, 3, stride, "same", use_bias=False))
            blocks += [layers.BatchNormalization(), layers.ReLU()]
        return keras.Sequential([*blocks, layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")])

    def bert() -> Any:
        tokens = keras.Input((64,), 8, dtype="int32")
        x = layers.Embedding(1000, 128)(tokens)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
        return keras.Model(tokens, layers.Dense(10, "softmax")(x[:, 0]))

    def lstm() -> Any:
        return keras.Sequential([layers.LSTM(64), layers.Dense(10, "softmax")])

    return {
        "Keras MLP": (mlp, RANDOM.normal(size=(64, 256)).astype(np.float32)),
        "Keras CNN, batch norm": (cnn, RANDOM.normal(size=(16, 32, 32, 3)).astype(np.float32)),
        "Keras BERT, small": (bert, RANDOM.integers(0, 1000, (8, 64)).astype(np.int32)),
        "Keras LSTM": (lstm, RANDOM.normal(size=(32, 20, 32)).astype(np.float32)),
    }


def fitted(make: Callable[[], Any], x: Any, seconds: float, scope: Any, steps: int = 20) -> float:
    """Steps per second of ``fit`` in ``scope``: Adam, a metric, ``steps`` steps in an execution."""
    y = RANDOM.integers(0, 10, len(x)).astype(np.int32)
    with scope:
        model = make()
        model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=steps)
        dataset = tf2.data.Dataset.from_tensors((x, y)).repeat()
        return per_second(lambda: model.fit(dataset, steps_per_epoch=steps, verbose=0), steps, seconds)


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def per_second(call: Callable[[], object], steps: int, seconds: float) -> float:
    """Steps per second: the best of three parts, after a warm-up."""
    call()
    best = 0.0
    for _ in range(3):
        start, done = perf_counter(), 0
        while perf_counter() - start < seconds / 3:
            call()
            done += steps
        best = max(best, done / (perf_counter() - start))
    return best


def resnet50_seconds() -> dict[str, float]:
    """Seconds to trace, import and compile the train step of ResNet-50."""
    from tf_keras.applications import ResNet50

    from ipu_emu.tensorflow.program.compiling import compile_section
    from ipu_emu.tensorflow.program.program import Program
    from ipu_emu.tensorflow.tracing.trace import Trace

    configure(1)
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [2, 224, 224, 3]), tf.placeholder(tf.int32, [2])
        trace = Trace("resnet50")

        def step(x: Any, y: Any) -> Any:
            logits = ResNet50(weights=None, classifier_activation=None)(x, training=True)
            value = cross_entropy(logits, y)
            return value, tf.train.MomentumOptimizer(0.01, 0.9).minimize(value)

        start = perf_counter()
        value, update = trace.call(step, [x, y])
        traced = perf_counter()
        program = Program(trace, [value], [update])
        imported = program.imported()
        made = perf_counter()
        for one in imported:
            compile_section(one, program.share)
        return {"trace": traced - start, "import": made - traced, "compile": perf_counter() - made}


def infeed_share(seconds: float) -> float:
    """Elements per second of an infeed over those of its data set alone."""
    from tensorflow.python.eager import context

    def dataset() -> Any:
        return tf.data.Dataset.range(10**9).map(lambda v: tf.random.stateless_uniform([64, 256], [0, v])).prefetch(8)

    with context.eager_mode():
        elements = iter(dataset())
        alone = per_second(lambda: next(elements).numpy(), 1, seconds)
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset())
        queue._start(dataset())
        fed = per_second(queue.next_element, 1, seconds)
        queue._stop()
    return fed / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a second for each number instead of ten")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to FILE")
    options = parser.parse_args()
    tf2.config.threading.set_intra_op_parallelism_threads(1)
    tf2.config.threading.set_inter_op_parallelism_threads(1)
    seconds, results = (1.0 if options.quick else 10.0), dict[str, Any]()
    for name, (loss, x, y) in NETS.items():
        plain, own = on_cpu(loss, x, y, seconds), on_ipu(loss, x, y, seconds)
        results[name] = {"TensorFlow": plain, "emulator": own, "ratio": own / plain}
        print(f"{name:<22} TensorFlow {plain:8.1f}  emulator {own:8.1f} steps/s  ratio {own / plain:.2f}", flush=True)
    plain, own = pipelined(seconds)
    results["two stages"] = {"TensorFlow": plain, "emulator": own, "ratio": own / plain}
    print(f"{'two-stage pipeline':<22} TensorFlow {plain:8.1f}  emulator {own:8.1f} steps/s  ratio {own / plain:.2f}")
    for name, (make, x) in keras_nets().items():
        configure(1)
        plain = fitted(make, x, seconds, nullcontext())
        own = fitted(make, x, seconds, ipu.ipu_strategy.IPUStrategy().scope())
        results[name] = {"Keras": plain, "emulator": own, "ratio": own / plain}
        print(f"{name:<22} Keras      {plain:8.1f}  emulator {own:8.1f} steps/s  ratio {own / plain:.2f}", flush=True)
    results["ResNet-50"] = resnet50_seconds()
    print("ResNet-50's step: " + ", ".join(f"{name} {value:.2f} s" for name, value in results["ResNet-50"].items()))
    results["infeed"] = infeed_share(seconds)
    print(f"infeed against its data set alone: {results['infeed']:.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
