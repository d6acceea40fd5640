"""Pipelines: stages that share IPUs, replicas that shard states, and the order of the results of inference."""

from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.training_runs import Model, assert_same, on_ipu


def test_every_mapping_has_the_same_bits(tf: Any, ipu: Any, configure: Any) -> None:
    sequential = ipu.pipelining_ops.PipelineSchedule.Sequential
    configure(4)
    first = on_ipu(tf, ipu, Model(3), "momentum")
    for mapping, options in (([0, 1, 0], {}), ([1, 0, 1], {}), ([0, 0, 0], {"pipeline_schedule": sequential})):
        configure(max(mapping) + 1)
        assert_same(on_ipu(tf, ipu, Model(3), "momentum", device_mapping=mapping, **options), first)


@pytest.fixture
def programs(tf: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that sessions run, which live as long as their graphs."""
    from ipu_emu.tensorflow.run import session_runs

    created, before = [], session_runs.add

    def add(graph: Any, program: Any) -> None:
        created.append(program)
        before(graph, program)

    monkeypatch.setattr(session_runs, "add", add)
    return created


@pytest.fixture
def executables(tf: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The compiled sections of the programs that sessions run."""
    from ipu_emu.tensorflow.run import program

    compiled, compile_section = [], program.compile_section

    def recorded(*arguments: Any, **options: Any) -> Any:
        section = compile_section(*arguments, **options)
        compiled.append(section.executable)
        return section

    monkeypatch.setattr(program, "compile_section", recorded)
    return compiled


@pytest.mark.parametrize(("optimizer", "clips"), [("momentum", True), ("adam", False), ("keras-rmsprop", False)])
def test_states_that_replicas_divide_have_the_same_bits_and_take_less_memory(
    tf: Any, ipu: Any, configure: Any, executables: list[Any], optimizer: str, clips: bool
) -> None:
    """Two replicas of two IPUs; gradients that are clipped are reduced as a whole."""

    def train(divided: bool) -> tuple[Any, int]:
        executables.clear()
        configure(4, optimizations__minimum_remote_tensor_size=0)
        options = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": divided}
        result = on_ipu(tf, ipu, Model(2), optimizer, replicas=2, clips=clips, **options)
        return result, sum(executable.plan.streaming_bytes_of(0) for executable in executables)

    (plain, most), (divided, least) = train(False), train(True)
    assert_same(divided, plain)
    assert least < most


@pytest.mark.parametrize("option", ["maximum_cross_replica_sum_buffer_size", "maximum_reduce_many_buffer_size"])
def test_sums_over_replicas_are_merged_up_to_the_size_of_a_buffer(
    tf: Any, ipu: Any, configure: Any, programs: list[Any], option: str
) -> None:
    """Each of two IPUs has two weights, of 6 x 6 or 6 x 2 numbers: together or one by one, with the same bits."""

    def train(size: int) -> tuple[Any, int]:
        configure(4, **{f"optimizations__{option}": size})
        result = on_ipu(tf, ipu, Model(4, count=8), "momentum", replicas=2, device_mapping=[0, 1, 0, 1])
        return result, sum(text.count("AllReduce add") for text in programs[-1].listings())

    (merged, least), (apart, most) = train(1000), train(100)
    assert_same(apart, merged)
    assert (least, most) == (2, 4)


def test_no_stage_waits_while_the_host_serves_another(
    tf: Any, ipu: Any, configure: Any, executables: list[Any]
) -> None:
    configure(2)
    on_ipu(tf, ipu, Model(2), "momentum")
    assert executables[0].sync == "SinglePipeline"


def test_inference_returns_outputs_in_the_order_of_the_data(tf: Any, ipu: Any, configure: Any) -> None:
    configure(2)
    dataset = tf.data.Dataset.range(8).map(lambda value: tf.cast([value], tf.float32)).repeat()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, "in"), ipu.ipu_outfeed_queue.IPUOutfeedQueue("out")

    def program() -> Any:
        return ipu.pipelining_ops.pipeline(
            [lambda x: x + 1.0, lambda x: x * 10.0],
            gradient_accumulation_count=4, repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed,
        )  # fmt: skip

    with tf.device("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(operation)
        np.testing.assert_array_equal(session.run(outfeed.dequeue()), 10.0 * np.arange(1, 9)[:, None])
