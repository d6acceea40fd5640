"""Errors of the pipeline call: where TensorFlow raises them, in its classes and with its words."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest


def call(
    tf: Any, ipu: Any, *, stages: Any = None, execute: bool = False, training: bool = False, **options: Any
) -> Any:
    """Compile, and run if asked, a pipeline of two stages with some options."""
    queues = ipu.ipu_infeed_queue, ipu.ipu_outfeed_queue
    infeed = queues[0].IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones((2, 2), np.float32)).repeat())
    outfeed = options.pop("outfeed_queue", "make")
    outfeed = queues[1].IPUOutfeedQueue() if outfeed == "make" else outfeed

    def first(x: Any) -> Any:
        return tf.matmul(x, weight("a"))

    def second(x: Any) -> Any:
        return tf.reduce_sum(tf.matmul(x, weight("b")))

    def weight(name: str) -> Any:
        return tf.get_variable(name, initializer=np.ones((2, 2), np.float32))

    def optimizer(loss: Any, *more: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)

    if training:
        options.setdefault("optimizer_function", optimizer)
    options.setdefault("gradient_accumulation_count", 4)
    options.setdefault("infeed_queue", infeed)
    chosen = [first, second] if stages is None else stages

    def program() -> Any:
        return ipu.pipelining_ops.pipeline(chosen, outfeed_queue=outfeed, **options)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    if execute:
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            session.run(operation)
    return operation


AT_ONCE: list[tuple[dict[str, Any], Any, str]] = [
    ({"gradient_accumulation_count": None}, ValueError, "gradient_accumulation_count must be specified."),
    ({"gradient_accumulation_count": -1}, ValueError, "gradient_accumulation_count must be >= 0."),
    ({"gradient_accumulation_count": 2**31}, ValueError, "gradient_accumulation_count must be < max int32."),
    ({"stages": [lambda x: x]}, ValueError, "Pipeline requires at least two computational stages."),
    ({"stages": 3}, TypeError, "computational_stages argument needs to be a list or a tuple."),
    ({"device_mapping": 1}, TypeError, "device_mapping argument needs to be a list or a tuple."),
    ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
    ({"infeed_queue": 1}, TypeError, "infeed_queue is not an instance of"),
    ({"outfeed_queue": 1}, TypeError, "outfeed_queue is not an instance of"),
    ({"pipeline_schedule": 1}, TypeError, "The given pipeline_schedule is not a member of the PipelineSchedule enum"),
    ({"recomputation_mode": 1}, TypeError, "The given recomputation_mode is not a member of the RecomputationMode"),
    ({"batch_serialization_iterations": 2, "reduction_method": "MEAN"}, ValueError,
     "batch_serialization_iterations != 1 is only supported when reduction_method is"),
    ({"batch_serialization_iterations": 2, "pipeline_schedule": "Grouped"}, NotImplementedError,
     "Batch serialization is only supported with the `Sequential` schedule."),
    ({"batch_serialization_iterations": 2, "device_mapping": [0, 1]}, NotImplementedError,
     "all the pipeline stages need to be mapped to a single IPU."),
    ({"continuous_weight_updates": True}, NotImplementedError, "Continuous weight updates are currently"),
    ({"pipeline_schedule": "Interleaved", "device_mapping": [0, 0], "training": True}, NotImplementedError,
     "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same device"),
    ({"outfeed_queue": None}, ValueError, "The last computational stage has tensor outputs: .*no outfeed_queue"),
    ({"outfeed_mask": [True, False], "training": True}, ValueError,
     "has 1 outputs, but the `outfeed_mask` has elements 2"),
    ({"outfeed_loss": True}, ValueError, "outfeed_loss and outfeed_mask need an optimizer_function"),
    ({"outfeed_loss": True, "outfeed_mask": [True], "training": True}, ValueError, "exclude each other"),
    ({"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False}, ValueError,
     "replicated_optimizer_state_sharding needs offload_weight_update_variables"),
    ({"forward_propagation_stages_poplar_options": [1]}, ValueError, "one PipelineStageOptions per stage"),
    ({"weight_update_poplar_options": [1]}, TypeError, "weight_update_poplar_options must be one Pip"),
    ({"reduction_method": "median"}, ValueError, "Cannot parse 'median'"),
    ({"optimizer_function": lambda loss: 3}, TypeError, "must return an OptimizerFunctionOutput"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "text"), AT_ONCE, ids=[text[:40] for _, _, text in AT_ONCE])
def test_an_error_of_the_call(tf: Any, ipu: Any, options: dict[str, Any], error: Any, text: str) -> None:
    arguments = dict(options)
    if isinstance(arguments.get("pipeline_schedule"), str):
        arguments["pipeline_schedule"] = ipu.pipelining_ops.PipelineSchedule[arguments["pipeline_schedule"]]
    with pytest.raises(error, match=text):
        call(tf, ipu, **arguments)


def test_a_stage_may_not_capture_a_tensor(tf: Any, ipu: Any) -> None:
    rate = tf.placeholder(np.float32, [])
    pattern = "Trying to capture the tensor .* which is not a resource."
    with pytest.raises(ValueError, match=pattern):
        call(tf, ipu, stages=[lambda x: x * rate, lambda x: x])


COMPILED: list[tuple[dict[str, Any], str, str]] = [
    ({"gradient_accumulation_count": 6, "training": True}, "FailedPreconditionError",
     "The number of iterations of the pipeline must be a multiple of 4, but it is 6."),
    ({"gradient_accumulation_count": 5}, "FailedPreconditionError", "must be a multiple of 2, but it is 5"),
    ({"pipeline_schedule": "Sequential", "recomputation_mode": "RecomputeThenBackpropagate", "training": True},
     "UnimplementedError", "Pipeline schedule Sequential does not support 'Recompute_then_backpropagate'"),
    ({"pipeline_schedule": "Interleaved", "recomputation_mode": "RecomputeAndBackpropagateInterleaved",
      "training": True},
     "UnimplementedError", "schedule Interleaved does not support 'Recompute_and_backpropagate_interleaved'"),
    ({"gradient_accumulation_count": 0, "training": True}, "FailedPreconditionError",
     "The number of iterations of the pipeline must be at least 4, but it is 0."),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "text"), COMPILED, ids=[text[:40] for _, _, text in COMPILED])
def test_an_error_of_the_compiler(
    tf: Any, tensorflow: Any, ipu: Any, configure: Any, options: dict[str, Any], error: str, text: str
) -> None:
    configure(2)
    arguments, ops = dict(options), ipu.pipelining_ops
    for name, kind in (("pipeline_schedule", ops.PipelineSchedule), ("recomputation_mode", ops.RecomputationMode)):
        if name in arguments:
            arguments[name] = kind[arguments[name]]
    with pytest.raises(getattr(tensorflow.v2.errors, error), match=text):
        call(tf, ipu, execute=True, **arguments)


def test_activations_need_remote_memory_to_be_offloaded(tf: Any, tensorflow: Any, ipu: Any, configure: Any) -> None:
    kinds, text = ipu.config.DeviceConnectionType, "Activation offloading has been enabled, however the current"
    for remote in (False, True):
        connection = {"device_connection__type": kinds.PRE_COMPILE, "device_connection__version": "ipu2"}
        configure(2, **connection, device_connection__enable_remote_buffers=remote)
        refused = pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match=text)
        with tf.Graph().as_default(), nullcontext() if remote else refused:
            call(tf, ipu, execute=True, training=True, offload_activations=True)


def test_a_program_has_one_pipeline(tf: Any, tensorflow: Any, ipu: Any, configure: Any) -> None:
    configure(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(2, np.float32)).repeat())

    def pipeline() -> Any:
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        return ipu.pipelining_ops.pipeline(
            [lambda x: x + 1.0, lambda x: x * 2.0], 4, infeed_queue=infeed, outfeed_queue=outfeed
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: (pipeline(), pipeline()))
    with tf.Session() as session:
        session.run(infeed.initializer)
        text = r"Only a single ipu.pipeline\(\) is allowed in a compiled program - this one has 2"
        with pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match=text):
            session.run(operation)


def test_a_variable_of_two_ipus_is_refused(tf: Any, tensorflow: Any, ipu: Any, configure: Any) -> None:
    configure(2)

    def stage(x: Any) -> Any:
        with tf.variable_scope("shared", reuse=tf.AUTO_REUSE, use_resource=True):
            return x * tf.get_variable("w", initializer=np.float32(2))

    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match="violates the dataflow constraints"):
        call(tf, ipu, stages=[stage, stage], execute=True)


def test_shards_must_divide_the_ipus(tf: Any, tensorflow: Any, ipu: Any, configure: Any) -> None:
    configure(1)
    with pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match="device with 1 IPUs and 2 shards"):
        call(tf, ipu, execute=True)


def test_a_count_may_be_an_input(tf: Any, tensorflow: Any, ipu: Any, configure: Any) -> None:
    configure(2)
    dataset = tf.data.Dataset.range(100).map(lambda v: tf.cast(v, tf.float32)).repeat()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program(count: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [lambda x: x + 1.0, lambda x: x * 2.0], gradient_accumulation_count=count, infeed_queue=infeed,
            outfeed_queue=outfeed,
        )  # fmt: skip

    holder = tf.placeholder(tf.int32, [])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program, [holder])
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        session.run(infeed.initializer)
        outputs = []
        for count in (4, 6, 4):
            session.run(operation, {holder: count})
            outputs.append(session.run(dequeued))
        with pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match=r"^Pipeline depth is invalid\. The"):
            session.run(operation, {holder: 5})
    assert [len(output) for output in outputs] == [4, 6, 4]
    np.testing.assert_array_equal(np.concatenate(outputs), 2.0 * np.arange(1, 15))


def test_options_of_the_outfeed(tf: Any, ipu: Any, configure: Any) -> None:
    configure(2)

    def losses(**options: Any) -> Any:
        with tf.Graph().as_default():
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            data = np.arange(8, dtype=np.float32).reshape(8, 1)
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data).repeat())

            def last(x: Any) -> Any:
                w = tf.get_variable("w", initializer=np.ones((1,), np.float32))
                return tf.reduce_sum(x * w), x

            def optimizer(loss: Any, x: Any) -> Any:
                opt = tf.train.GradientDescentOptimizer(0.0)
                return ipu.pipelining_ops.OptimizerFunctionOutput(opt, loss * 3.0)

            def program() -> Any:
                return ipu.pipelining_ops.pipeline(
                    [lambda x: x, last], 4, infeed_queue=infeed, outfeed_queue=outfeed, repeat_count=2,
                    optimizer_function=optimizer, **options,
                )  # fmt: skip

            with ipu.scopes.ipu_scope("/device:IPU:0"):
                operation = ipu.ipu_compiler.compile(program)
            dequeued = outfeed.dequeue()
            with tf.Session() as session:
                session.run([tf.global_variables_initializer(), infeed.initializer])
                session.run(operation)
                return session.run(dequeued)

    both = losses()
    np.testing.assert_array_equal(both[0], np.arange(8))
    np.testing.assert_array_equal(both[1], np.arange(8)[:, None])
    np.testing.assert_array_equal(losses(outfeed_loss=True), 3 * np.arange(8))
    (masked,) = losses(outfeed_mask=[True, False])
    np.testing.assert_array_equal(masked, np.arange(8)[:, None])
    summed = losses(accumulate_outfeed=True)
    np.testing.assert_array_equal(summed[0], [6, 22])
    assert losses(accumulate_outfeed=True, accumulate_outfeed_dtype=np.float16)[1].dtype == np.float16


def test_stages_may_be_concurrent_sharded_or_serialised(tf: Any, ipu: Any, configure: Any) -> None:
    def outputs(stages: Any, **options: Any) -> Any:
        with tf.Graph().as_default():
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            data = np.arange(8, dtype=np.float32)
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data).repeat())

            def program() -> Any:
                return ipu.pipelining_ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed, **options)

            with ipu.scopes.ipu_scope("/device:IPU:0"):
                operation = ipu.ipu_compiler.compile(program)
            dequeued = outfeed.dequeue()
            with tf.Session() as session:
                session.run(infeed.initializer)
                session.run(operation)
                return session.run(dequeued)

    def sharded(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = x + 1.0
        with ipu.scopes.ipu_shard(1):
            return y * 2.0

    configure(4)
    parallel = [[lambda x: x + 1.0, lambda x: x * 2.0], lambda a, b: a + b]
    actual = outputs(parallel, device_mapping=[[0, 1], 2])
    np.testing.assert_array_equal(actual, 3 * np.arange(4) + 1)
    configure(2)
    actual = outputs([sharded, lambda x: x - 1.0], device_mapping=[-1, 0])
    np.testing.assert_array_equal(actual, 2 * np.arange(4) + 1)
    configure(1)
    actual = outputs([lambda x: x + 1.0, lambda x: x * 2.0], batch_serialization_iterations=2)
    np.testing.assert_array_equal(actual, 2 * (np.arange(8) + 1))
