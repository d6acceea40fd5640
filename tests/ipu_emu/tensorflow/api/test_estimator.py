"""Estimators: training resumes from checkpoints, evaluation and prediction read them; mistakes are reported."""

from typing import Any

import numpy as np
import pytest

XS = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
YS = (XS[:, 0] > 0).astype(np.int32)


def data(tf: Any, repeated: bool) -> Any:
    def make() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(({"x": XS}, YS)).batch(8, drop_remainder=True)
        return dataset.repeat() if repeated else dataset

    return make


def layer(tf: Any, x: Any, columns: int, name: str) -> Any:
    start = np.random.default_rng(columns).normal(size=(int(x.shape[-1]), columns)).astype(np.float32) / 2
    return tf.matmul(x, tf.get_variable(name, initializer=start))


def cross_entropy(tf: Any, logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def model(tf: Any) -> Any:
    modes, spec = tf.estimator.ModeKeys, tf.estimator.EstimatorSpec

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        logits = layer(tf, tf.nn.relu(layer(tf, features["x"], 8, "first")), 2, "second")
        chosen = tf.argmax(logits, -1, output_type=tf.int32)
        if mode == modes.PREDICT:
            return spec(mode, predictions={"chosen": chosen, "logits": logits})
        loss = cross_entropy(tf, logits, labels)
        if mode == modes.EVAL:
            return spec(mode, loss=loss, eval_metric_ops={"accuracy": tf.metrics.accuracy(labels, chosen)})
        return spec(mode, loss=loss, train_op=tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss))

    return model_fn


def configured(ipu: Any, iterations: int, shards: int = 1) -> Any:
    own = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=iterations, num_shards=shards)
    return ipu.ipu_run_config.RunConfig(ipu_run_config=own)


def test_an_estimator_trains_evaluates_and_predicts(tf: Any, ipu: Any, tmp_path: Any) -> None:
    def estimator(folder: str) -> Any:
        return ipu.ipu_estimator.IPUEstimator(
            model(tf), str(tmp_path / folder), configured(ipu, 4), params={"rate": 0.2}
        )

    at_once, in_parts = estimator("one"), estimator("two")
    at_once.train(data(tf, True), steps=16)
    in_parts.train(data(tf, True), steps=8)
    early = in_parts.evaluate(data(tf, False))
    estimator("two").train(data(tf, True), max_steps=16)  # resumes from the checkpoint
    ends = [trained.evaluate(data(tf, False), steps=steps) for trained, steps in ((at_once, 4), (in_parts, 8 / 2))]
    assert ends[0] == ends[1]
    assert ends[0]["global_step"] == 16
    assert ends[0]["loss"] < early["loss"]
    rows = list(at_once.predict(data(tf, False), ["chosen"]))
    assert len(rows) == len(XS)
    assert np.mean([row["chosen"] for row in rows] == YS) == pytest.approx(ends[0]["accuracy"])
    assert [set(row) for row in rows[:1]] == [{"chosen"}]
    with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of iterations_per_loop \(4\)"):
        at_once.train(data(tf, True), steps=6)
    with pytest.raises(NotImplementedError, match="warm_start_from"):
        ipu.ipu_estimator.IPUEstimator(model(tf), warm_start_from=str(tmp_path / "one"))


def test_a_pipeline_estimator_trains_its_stages(tf: Any, ipu: Any, tmp_path: Any) -> None:
    def model_fn(mode: str) -> Any:
        def first(features: Any, labels: Any) -> Any:
            return tf.nn.relu(layer(tf, features["x"], 8, "first")), labels

        def second(x: Any, labels: Any) -> Any:
            return cross_entropy(tf, layer(tf, x, 2, "second"), labels)

        def optimizer(loss: Any) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)

        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode, [first, second], 4, lambda loss: {"loss": loss}, optimizer
        )

    def estimator(iterations: int) -> Any:
        return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
            model_fn, str(tmp_path), configured(ipu, iterations, shards=2)
        )

    pipelined = estimator(8)
    losses = []
    for _ in range(2):
        pipelined.train(data(tf, True), steps=16)
        losses.append(pipelined.evaluate(data(tf, True), steps=8))
    assert losses[1]["loss"] < losses[0]["loss"]
    assert losses[1]["global_step"] == 32
    with pytest.raises(ValueError, match=r"iterations_per_loop \(6\) must be a multiple"):
        estimator(6).train(data(tf, True), steps=6)


def test_a_hook_logs_tensors_of_the_program(tf: Any, ipu: Any, tmp_path: Any) -> None:
    logged: list[dict[str, Any]] = []

    def keep(values: dict[str, Any]) -> str:
        logged.append(values)
        return "kept"

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = cross_entropy(tf, layer(tf, features["x"], 2, "only"), labels)
        hook = ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=2, formatter=keep)
        with tf.control_dependencies([hook.log({"loss": loss})]):
            train = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=[hook])

    ipu.ipu_estimator.IPUEstimator(model_fn, str(tmp_path), configured(ipu, 2)).train(data(tf, True), steps=12)
    losses = [values["loss"] for values in logged]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    with pytest.raises(RuntimeError, match="nothing to log"):
        ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=1).begin()
    with pytest.raises(ValueError, match="every_n_iter"):
        ipu.ipu_session_run_hooks.IPULoggingTensorHook()
