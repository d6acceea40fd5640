"""Modules: their names are those of the reference and of early releases; the results of small ones."""

import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest

NAMES = {
    "cross_replica_optimizer": "CrossReplicaOptimizer",
    "gradient_accumulation_optimizer": "GradientAccumulationOptimizerV2",
    "grad_util_ops": "capture_upstream_gradients",
    "ipu_multi_worker_strategy": "IPUMultiWorkerStrategyV1",
    "ipu_session_run_hooks": "IPULoggingTensorHook",
    "map_gradient_optimizer": "MapGradientOptimizer",
    "ops.slicing_ops": "sequence_slice",
    "optimizers.sharded_optimizer": "ShardedOptimizer",
    "sharded_optimizer": "ShardedOptimizer",
    "summary_ops": "ipu_compile_summary",
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_module_has_the_names_of_the_reference(tf: Any, ipu: Any, name: str) -> None:
    module = import_module(f"tensorflow.python.ipu.{name}")
    assert NAMES[name] in module.__all__
    attribute: Any = ipu
    for part in name.split("."):
        attribute = getattr(attribute, part)
    assert attribute is module


def test_the_strategy_of_early_releases_warns(tf: Any, ipu: Any) -> None:
    with pytest.warns(UserWarning, match="Use PopDistStrategy instead"):
        strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1(None)
    assert strategy.num_replicas_in_sync == 1


def test_a_sequence_slice_copies_rows(run: Any, ipu: Any) -> None:
    random = np.random.default_rng(0)
    dst, src = (random.normal(size=(rows, 2)).astype(np.float32) for rows in (7, 5))
    counts, sources, places = np.array([2, 3]), np.array([3, 0]), np.array([4, 1])
    for zero_unused in (False, True):
        expected = np.zeros_like(dst) if zero_unused else dst.copy()
        for count, source, place in zip(counts, sources, places, strict=True):
            expected[place : place + count] = src[source : source + count]

        def program(a: Any, b: Any, zero: bool = zero_unused) -> Any:
            return ipu.slicing_ops.sequence_slice(a, b, counts, sources, places, zero)

        np.testing.assert_array_equal(run(program, dst, src)[0], expected)


def test_ops_outside_of_the_compilation_compute_the_same(tf: Any, ipu: Any, run: Any) -> None:
    def program(x: Any) -> Any:
        with ipu.scopes.outside_compilation_scope():
            y = x + 1.0
        return y * 3.0

    np.testing.assert_array_equal(run(program, np.array([1, 2], np.float32))[0], [6, 9])
    outside = ipu.scopes.outside_compilation_scope
    with pytest.raises(ValueError, match="only allowed in compiled functions"), outside():
        pass

    def nested(x: Any) -> Any:
        with outside(), outside():
            return x

    with pytest.raises(ValueError, match="Illegal nesting"):
        run(nested, np.zeros(2, np.float32))


def test_a_summary_has_the_text_of_the_programs(tf: Any, ipu: Any) -> None:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (operation,) = ipu.ipu_compiler.compile(lambda: tf.sqrt(tf.get_variable("v", [2])))
    ipu.summary_ops.ipu_compile_summary("programs", operation)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        (value,) = tf.Summary.FromString(session.run(tf.summary.merge_all())).value
    assert value.tag == "programs"
    assert "Sqrt" in value.tensor.string_val[0].decode()


def test_a_global_step_that_the_program_did_not_make_a_resource(tf: Any, ipu: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf.disable_resource_variables()
    try:
        step = tf.Variable(0, trainable=False, name="step")

        def program() -> Any:
            loss = tf.square(tf.get_variable("w", initializer=np.float32(3)))
            rate = tf.train.exponential_decay(0.5, step, 1, 0.5)
            return rate, tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=step)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (operation,) = ipu.ipu_compiler.compile(program)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert [session.run(operation) for _ in range(3)] == [0.5, 0.25, 0.125]
            assert session.run(step) == 3
    finally:
        tf.enable_resource_variables()
