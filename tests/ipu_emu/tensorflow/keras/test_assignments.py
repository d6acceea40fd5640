"""Stages and options: assigning and printing them, and the errors for mistakes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import op_by_op


@pytest.fixture
def build(tf2: Any, ipu: Any, strategy: Any) -> Callable[..., Any]:
    """Make a functional model of four layers; ``stages`` are those of its layers."""

    def make(*stages: int | None) -> Any:
        layers = tf2.keras.layers
        with strategy.scope():
            inputs = x = tf2.keras.Input((4,), name="given")
            for number in range(4):
                x = layers.Dense(4, name="split" if number == 1 else f"dense{number}")(x)
            model = tf2.keras.Model(inputs, x, name="net")
            if stages:
                assignments = model.get_pipeline_stage_assignment()
                for entry, stage in zip(assignments, stages, strict=True):
                    entry.pipeline_stage = stage
                model.set_pipeline_stage_assignment(assignments)
        return model

    return make


def test_assignments_are_listed_in_post_order_without_inputs(build: Any) -> None:
    assignments = build().get_pipeline_stage_assignment()
    assert [entry.layer.name for entry in assignments] == ["dense0", "split", "dense2", "dense3"]
    assert [entry.inbound_layers[0].name for entry in assignments] == ["given", "dense0", "split", "dense2"]
    assert [entry.pipeline_stage for entry in assignments] == [None] * 4
    assert [entry.pipeline_stage for entry in build(0, 0, 1, 1).get_pipeline_stage_assignment()] == [0, 0, 1, 1]


def test_the_call_of_a_layer_wins_over_where_it_was_made(tf2: Any, ipu: Any, strategy: Any) -> None:
    keras, stage = tf2.keras, ipu.keras.PipelineStage
    with strategy.scope():
        inputs = keras.Input((4,))
        with stage(0):
            first, second = keras.layers.Dense(4), keras.layers.Dense(4)
        with stage(1):
            x = second(first(inputs))
        model = keras.Model(inputs, first(x))
    assert [entry.pipeline_stage for entry in model.get_pipeline_stage_assignment()] == [1, 1, 0]


def test_the_summary_shows_every_layer_with_its_stage(build: Any) -> None:
    lines: list[str] = []
    build(0, 0, 1, 1).print_pipeline_stage_assignment_summary(print_fn=lines.append)
    assert lines[0] == 'Model: "net"'
    rows = [re.split(r"\s{2,}", line) for line in lines if line.startswith(("dense", "split"))]
    assert rows == [["dense0 (Dense) (0)", "0"], ["split (Dense) (0)", "0"], ["dense2 (Dense) (0)", "1"],
                    ["dense3 (Dense) (0)", "1"]]  # fmt: skip


def test_a_reset_removes_the_stages(build: Any) -> None:
    model = build(0, 0, 1, 1)
    model.reset_pipeline_stage_assignment()
    assert [entry.pipeline_stage for entry in model.get_pipeline_stage_assignment()] == [None] * 4


def run(model: Any, steps: int = 4) -> Any:
    model.compile("sgd", "mse", steps_per_execution=steps)
    return model.fit(np.ones((16, 4), np.float32), np.ones((16, 4), np.float32), 2, verbose=0)


_CASES: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "nested": (
        lambda b, k: _in(k.PipelineStage(0), k.PipelineStage(1)),
        RuntimeError,
        "Pipeline stages must not be nested.",
    ),
    "negative": (lambda b, k: k.PipelineStage(-1), ValueError, "must be an integer of at least 0"),
    "steps": (
        lambda b, k: b().set_pipelining_options(0),
        ValueError,
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got 0 instead.",
    ),
    "mapping": (
        lambda b, k: b().set_pipelining_options(2, device_mapping=3),
        ValueError,
        "Expected `device_mapping` to be a list of integers.",
    ),
    "count": (
        lambda b, k: b().set_pipelining_options(2, gradient_accumulation_count=3),
        ValueError,
        "Found `gradient_accumulation_count` key in `pipelining_kwargs`. Set the "
        "`gradient_accumulation_steps_per_replica` argument instead.",
    ),
    "repeat": (
        lambda b, k: b().set_pipelining_options(2, repeat_count=3),
        ValueError,
        "Found `repeat_count` key in `pipelining_kwargs`. This argument is automatically set by Keras.",
    ),
    "mask": (
        lambda b, k: b().set_pipelining_options(2, outfeed_mask=[True]),
        ValueError,
        "Found `outfeed_mask` key in `pipelining_kwargs`. This argument is not compatible with Keras.",
    ),
    "depth": (
        lambda b, k: b().set_infeed_queue_options(prefetch_depth=0),
        ValueError,
        "prefetch_depth must be greater than zero",
    ),
    "depth of letters": (
        lambda b, k: b().set_infeed_queue_options(prefetch_depth="a"),
        ValueError,
        "prefetch_depth must be a whole number, not 'a'",
    ),
    "buffers of a fraction": (
        lambda b, k: b().set_outfeed_queue_options(buffer_depth=1.5),
        ValueError,
        "Outfeed buffer depth must be a whole number, not 1.5",
    ),
    "steps of nothing": (
        lambda b, k: b().compile("sgd", "mse", steps_per_execution=0),
        ValueError,
        "steps_per_execution must be a whole number of at least 1, not 0",
    ),
    "steps of a fraction": (
        lambda b, k: b().compile("sgd", "mse", None, None, None, None, 1.5),
        ValueError,
        "steps_per_execution must be a whole number of at least 1, not 1.5",
    ),
    "buffers": (
        lambda b, k: b().set_outfeed_queue_options(buffer_depth=0),
        ValueError,
        "Outfeed buffer depth cannot be less than 1",
    ),
    "optimizer": (
        lambda b, k: b().set_gradient_accumulation_options(2, num_mini_batches=3),
        ValueError,
        "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the",
    ),
    "reduction of metrics": (
        lambda b, k: b().set_replication_options("MAX"),
        ValueError,
        "Cannot parse 'MAX' as one of ReplicatedMetricReductionMethod, which has NONE, LIST, SUM, MEAN",
    ),
    "length": (
        lambda b, k: b().set_pipeline_stage_assignment([]),
        ValueError,
        "The length of the provided `pipeline_stage_assignment` (0) does not match the number of layers in the graph "
        "(4).",
    ),
    "kind": (
        lambda b, k: b().set_pipeline_stage_assignment([0, 0, 1, 1]),
        ValueError,
        "All elements of `pipeline_stage_assignment` are expected to be instances of Functional",
    ),
    "missing": (lambda b, k: b(0, 0, None, 1), ValueError, "Layer dense2 with node index 0 has not been assigned a"),
    "order": (
        lambda b, k: (m := b(0, 0, 1, 1)).set_pipeline_stage_assignment(m.get_pipeline_stage_assignment()[::-1]),
        ValueError,
        "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph",
    ),
    "gap": (
        lambda b, k: b(0, 0, 3, 3),
        RuntimeError,
        "All stages in a pipeline must have at lease one layer assigned to them. The highest stage with an "
        "assignment is stage 3, however the preceeding stages [1, 2] had no assignments.",
    ),
    "dependency": (
        lambda b, k: run(b(0, 1, 0, 1)),
        ValueError,
        "Layer dense2 in pipeline stage 0 has a dependency from a pipeline stage which has not yet been executed.",
    ),
    "no steps": (
        lambda b, k: run(b(0, 0, 1, 1)),
        ValueError,
        "The model which you are attempting to train is pipelined, however `gradient_accumulation_steps_per_replica` "
        "has not been set through `set_pipelining_options()`.",
    ),
    "pipelined steps": (
        lambda b, k: run(_with(b(0, 0, 1, 1), pipeline=3)),
        RuntimeError,
        "The pipelined model has been configured to use gradient accumulation for training, however the current "
        "`steps_per_execution` value (set to 4) is not divisible by `gradient_accumulation_steps_per_replica` (3).",
    ),
    "indivisible steps": (
        lambda b, k: run(_with(b(), accumulation=3)),
        RuntimeError,
        "The model has been configured to use gradient accumulation for training, however the current "
        "`steps_per_execution` value (set to 4) is not divisible by `gradient_accumulation_steps_per_replica` (3).",
    ),
    "IPUs": (
        lambda b, k: run(_with(b(0, 1, 2, 2), pipeline=4)),
        ValueError,
        "Current device has 2 IPUs attached, however the current model requires a multiple of 4 IPUs.",
    ),
}


def _in(*scopes: Any) -> None:
    with scopes[0], scopes[1]:
        pass


def _with(model: Any, pipeline: int | None = None, accumulation: int | None = None) -> Any:
    if pipeline:
        model.set_pipelining_options(pipeline)
    if accumulation:
        model.set_gradient_accumulation_options(accumulation)
    return model


@pytest.mark.parametrize("case", _CASES)
def test_mistakes(build: Any, ipu: Any, strategy: Any, configure: Any, case: str) -> None:
    call, error, text = _CASES[case]
    configure(2)
    with strategy.scope(), pytest.raises(error, match=re.escape(text)):
        call(build, ipu.keras)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((key, "This argument is automatically set by Keras.") for key in (
            "computational_stages", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function", "repeat_count",
        )),
        *((key, "This argument is not compatible with Keras.") for key in (
            "batch_serialization_iterations", "outfeed_loss", "outfeed_mask",
        )),
        ("reduction_method", "Set the `gradient_accumulation_reduction_method` argument instead."),
    ],
)  # fmt: skip
def test_arguments_of_a_pipeline_that_keras_sets(build: Any, key: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"Found `{key}` key in `pipelining_kwargs`. {text}")):
        build().set_pipelining_options(2, **{key: None})


def test_an_optimizer_with_its_own_minimize_is_refused(tf2: Any, build: Any, strategy: Any) -> None:
    class Own(tf2.keras.optimizers.SGD):  # type: ignore[misc]
        def minimize(self, *arguments: Any, **named: Any) -> None:
            """Do something else."""

    with strategy.scope(), pytest.raises(ValueError, match=r"Own must not override OptimizerV2\.minimize"):
        build().compile(Own(), "mse")


def test_a_batch_normalisation_in_a_pipeline_is_warned_of(
    tf2: Any, strategy: Any, configure: Any, caplog: Any
) -> None:
    configure(2)
    layers = tf2.keras.layers
    with strategy.scope():
        model = tf2.keras.Sequential([layers.BatchNormalization(name="norm", input_shape=(4,)), layers.Dense(4)])
        model.set_pipeline_stage_assignment([0, 1])
        run(_with(model, pipeline=4))
    assert "norm: a batch normalisation in a pipeline takes the statistics of each mini-batch" in caplog.text


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ([0], "(1) does not match the number of layers"),
        ([1, 1], "The first pipeline stage in `pipeline_stage_assignment` must be 0"),
        ([0, 2], "but 2 follows 0"),
        (["a", "b"], "must be integers"),
    ],
)
def test_mistakes_with_stages_of_a_sequential_model(tf2: Any, strategy: Any, stages: Any, text: str) -> None:
    with strategy.scope():
        model = tf2.keras.Sequential([tf2.keras.layers.Dense(2), tf2.keras.layers.Dense(2)])
        with pytest.raises(ValueError, match=re.escape(text)):
            model.set_pipeline_stage_assignment(stages)


def test_a_layer_without_a_stage_is_named(tf2: Any, ipu: Any, strategy: Any, configure: Any) -> None:
    configure(2)
    with strategy.scope():
        inputs = tf2.keras.Input((4,))
        with ipu.keras.PipelineStage(0):
            x = tf2.keras.layers.Dense(4)(inputs)
        model = tf2.keras.Model(inputs, tf2.keras.layers.Dense(4, name="bare")(x))
        text = "All layers of a pipelined model must have an associated pipeline stage. However, bare has none."
        with pytest.raises(ValueError, match=re.escape(text)):
            run(_with(model, pipeline=4))


def test_a_layer_of_stages_on_two_ipus_is_refused(tf2: Any, strategy: Any, configure: Any) -> None:
    configure(2)
    layers = tf2.keras.layers
    with strategy.scope():
        inputs, twice = tf2.keras.Input((4,)), layers.Dense(4, name="twice")
        model = tf2.keras.Model(inputs, twice(layers.Dense(4)(twice(inputs))))
        assignments = model.get_pipeline_stage_assignment()
        for entry, stage in zip(assignments, (0, 0, 1), strict=True):
            entry.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)
        text = r"The stage 1 is trying to use an input \(.*/twice/.*\) which is already used by the stage 0"
        with pytest.raises(tf2.errors.UnimplementedError, match=text):
            run(_with(model, pipeline=4))
        model.set_pipelining_options(4, device_mapping=[0, 0])
        assert len(run(model).history["loss"]) == 1


def test_scopes_and_methods_need_a_strategy(tf2: Any, ipu: Any) -> None:
    with (
        pytest.raises(RuntimeError, match="PipelineStage may only be used from within an IPUStrategy context"),
        ipu.keras.PipelineStage(0),
    ):
        pass
    model = tf2.keras.Sequential([tf2.keras.layers.Dense(2)])
    with pytest.raises(RuntimeError, match="was made outside of the scope of an IPUStrategy"):
        model.set_pipelining_options(2)


def test_a_subclassed_model_must_be_built_first(tf2: Any, strategy: Any) -> None:
    class Net(tf2.keras.Model):  # type: ignore[misc]
        pass

    with strategy.scope(), pytest.raises(ValueError, match="has not been built, so its layers are not known"):
        Net().get_pipeline_stage_assignment()


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_configuration_keeps_options_and_stages(
    tf2: Any, build: Any, strategy: Any, tmp_path: Any, kind: str
) -> None:
    keras = tf2.keras
    with strategy.scope():
        if kind == "functional":
            model = build(0, 0, 1, 1)
        else:
            model = keras.Sequential([keras.layers.Dense(4, input_shape=(4,)), keras.layers.Dense(4)])
            model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(4, device_mapping=[1, 0], gradient_accumulation_reduction_method="mean")
        model.set_replication_options("SUM")
        model.set_asynchronous_callbacks(True)
        model.set_infeed_queue_options(prefetch_depth=3)
        model.get_config()["ipu_options"]["infeed_kwargs"].clear()  # a copy
        model.save(tmp_path / "model.keras")
        for copy in (type(model).from_config(model.get_config()), keras.models.load_model(tmp_path / "model.keras")):
            assert copy.__dict__["_ipu_extension"].options == model.__dict__["_ipu_extension"].options
            stages, expected = ([a.pipeline_stage for a in m.get_pipeline_stage_assignment()] for m in (copy, model))
            assert stages == expected
    outside = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outside.get_weights()[0], model.get_weights()[0])


def test_a_model_of_the_device_does_not_run_eagerly(tf2: Any, build: Any) -> None:
    model = build()
    with pytest.raises(RuntimeError, match="cannot run eagerly; leave out run_eagerly"):
        model.compile(run_eagerly=True)
    with pytest.raises(RuntimeError, match="cannot run eagerly; leave out run_eagerly"):
        model.compile("sgd", "mse", None, None, None, True)
    model.compile("sgd", "mse")
    model.run_eagerly = True
    with pytest.raises(RuntimeError, match="cannot run eagerly"):
        model.predict(np.ones((2, 4), np.float32), verbose=0)
    with (
        op_by_op(tf2),
        pytest.raises(RuntimeError, match=r"leave out run_eagerly and tf\.config.run_functions_eagerly"),
    ):
        build().compile("sgd", "mse")
