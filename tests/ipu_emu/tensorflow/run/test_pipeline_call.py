"""The frameworks' pipeline call: every error with its type and its text, and the schedules of valid calls."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import TaskType, schedule
from ipu_emu.tensorflow import (
    OutfeedMode,
    OutfeedQueue,
    PipelineCall,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    ReductionMethod,
    StageFunction,
    check_program,
    check_shards,
)

FIRST, LAST = StageFunction("first", ("y",)), StageFunction("last", ("loss",))
TRAINING: dict[str, Any] = {"optimizer_function": print, "outfeed_queue": OutfeedQueue()}
SEQUENTIAL = {"pipeline_schedule": PipelineSchedule.Sequential}
INTERLEAVED = {"pipeline_schedule": PipelineSchedule.Interleaved}
SERIAL = {**SEQUENTIAL, "batch_serialization_iterations": 2}
STATES, BOTH = {"replicated_optimizer_state_sharding": True}, {"outfeed_loss": True, "outfeed_mask": [True]}


def using(**values: Any) -> dict[str, Any]:
    """A last stage with these properties."""
    return {"computational_stages": [FIRST, StageFunction("last", **({"outputs": ("loss",)} | values))]}


#: Arguments in addition to those of a training pipeline of two stages, the type of the error, and its whole text.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"gradient_accumulation_count": None}, ValueError, "gradient_accumulation_count must be specified."),
    ({"gradient_accumulation_count": -1}, ValueError, "gradient_accumulation_count must be >= 0."),
    ({"gradient_accumulation_count": 2**31 - 1}, ValueError, "gradient_accumulation_count must be < max int32."),
    ({"computational_stages": [LAST]}, ValueError, "Pipeline requires at least two computational stages."),
    (
        {"batch_serialization_iterations": 2, "reduction_method": "mean"},
        ValueError,
        "batch_serialization_iterations != 1 is only supported when reduction_method is "
        "GradientAccumulationReductionMethod.SUM",
    ),
    (
        {"batch_serialization_iterations": 2, "pipeline_schedule": PipelineSchedule.Grouped},
        NotImplementedError,
        "Batch serialization is only supported with the `Sequential` schedule.",
    ),
    (
        {**SERIAL, "device_mapping": [0, 1]},
        NotImplementedError,
        "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
    ),
    (
        {"continuous_weight_updates": True},
        NotImplementedError,
        "Continuous weight updates are currently not supported.",
    ),
    (
        {**INTERLEAVED, "device_mapping": [0, 0]},
        NotImplementedError,
        "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
        "device for training graphs. Give each stage its own IPU, or use another schedule.",
    ),
    (
        {"computational_stages": LAST},
        TypeError,
        "computational_stages argument needs to be a list or a tuple.",
    ),
    (
        {"computational_stages": [[FIRST], [print]]},
        TypeError,
        "computational_stages argument needs to have stages that are a StageFunction, or a list of concurrent ones.",
    ),
    (
        {"computational_stages": [FIRST, 3]},
        TypeError,
        "computational_stages argument needs to have stages that are a StageFunction, or a list of concurrent ones.",
    ),
    (
        {"gradient_accumulation_count": "8"},
        TypeError,
        "gradient_accumulation_count needs to be an integer, or a function that gives one, not '8'.",
    ),
    (
        {"device_mapping": [0.5, 1]},
        TypeError,
        "device_mapping needs to be a list of IPUs, or of lists of them, not [0.5, 1].",
    ),
    ({"outfeed_mask": "x"}, TypeError, "outfeed_mask needs to be a list of booleans, not 'x'."),
    ({"optimizer_function": 3}, TypeError, "optimizer_function needs to be a function, not 3."),
    ({"repeat_count": 1.5}, TypeError, "repeat_count needs to be an integer, not 1.5."),
    (
        {"batch_serialization_iterations": True},
        TypeError,
        "batch_serialization_iterations needs to be an integer, not True.",
    ),
    (
        {"batch_serialization_iterations": 0},
        ValueError,
        "batch_serialization_iterations and repeat_count must be > 0.",
    ),
    (
        {"recomputation_mode": None},
        TypeError,
        "The given recomputation_mode is not a member of the RecomputationMode enumeration.",
    ),
    ({"device_mapping": 0}, TypeError, "device_mapping argument needs to be a list or a tuple."),
    ({"outfeed_queue": "name"}, TypeError, "outfeed_queue is not an instance of OutfeedQueue"),
    (
        {"pipeline_schedule": "Grouped"},
        TypeError,
        "The given pipeline_schedule is not a member of the PipelineSchedule enumeration.",
    ),
    (
        {"recomputation_mode": 1},
        TypeError,
        "The given recomputation_mode is not a member of the RecomputationMode enumeration.",
    ),
    ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
    (
        {"device_mapping": [0, [1, 2]]},
        ValueError,
        "Each function of a concurrent stage must be mapped to an IPU of its own; give device_mapping a list for it.",
    ),
    (
        {"outfeed_queue": None},
        ValueError,
        "The last computational stage has tensor outputs: loss, but no outfeed_queue has been provided.",
    ),
    (
        {"outfeed_mask": [True, False]},
        ValueError,
        "The last computational stage has 1 outputs, but the `outfeed_mask` has elements 2 - these need to match in "
        "size.",
    ),
    (
        using(captured=("x",)),
        ValueError,
        "Trying to capture the tensor x which is not a resource. Pass it from stage to stage, or as one of the "
        "inputs.",
    ),
    (BOTH, ValueError, "outfeed_loss and outfeed_mask exclude each other; give one of them."),
    (
        {"outfeed_loss": True, "optimizer_function": None},
        ValueError,
        "outfeed_loss and outfeed_mask need an optimizer_function.",
    ),
    (
        {"outfeed_mask": [True], "outfeed_queue": None},
        ValueError,
        "outfeed_loss and outfeed_mask need an outfeed_queue.",
    ),
    (
        {"accumulate_outfeed": True, "outfeed_queue": OutfeedQueue(OutfeedMode.LAST)},
        ValueError,
        "accumulate_outfeed needs an outfeed_queue in mode ALL.",
    ),
    (
        {**STATES, "offload_weight_update_variables": False},
        ValueError,
        "replicated_optimizer_state_sharding needs offload_weight_update_variables.",
    ),
    (
        {"forward_propagation_stages_poplar_options": [PipelineStageOptions()]},
        ValueError,
        "forward_propagation_stages_poplar_options must be a list of one PipelineStageOptions per stage.",
    ),
    (
        {"backward_propagation_stages_poplar_options": [None, None]},
        ValueError,
        "backward_propagation_stages_poplar_options must be a list of one PipelineStageOptions per stage.",
    ),
    (
        {"weight_update_poplar_options": [PipelineStageOptions()]},
        TypeError,
        "weight_update_poplar_options must be one PipelineStageOptions.",
    ),
    (
        {"reduction_method": "median"},
        ValueError,
        "reduction_method 'median' is unknown; use SUM, MEAN, RUNNING_MEAN.",
    ),
    (
        {**SEQUENTIAL, "recomputation_mode": RecomputationMode.RecomputeThenBackpropagate},
        NotImplementedError,
        "Pipeline schedule Sequential does not support 'Recompute_then_backpropagate' recomputation mode.",
    ),
    (
        {**INTERLEAVED, "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved},
        NotImplementedError,
        "Pipeline schedule Interleaved does not support 'Recompute_and_backpropagate_interleaved' recomputation "
        "mode.",
    ),
    (
        {"computational_stages": [StageFunction("first", variables=("w",)), StageFunction("last", (), ("w",))]},
        NotImplementedError,
        "The last is trying to use an input (w) which is already used by the first. This violates the dataflow "
        "constraints because an input can only be used by pipeline stages on the same IPU. Map both to one IPU.",
    ),
    (
        using(shards=(0, 1)),
        NotImplementedError,
        "last puts ops on shards, but it is a stage of a pipeline on one IPU; map the stage to -1.",
    ),
    (
        {"offload_activations": True, "remote_memory": False},
        Exception,
        "Activation offloading has been enabled, however the current configuration of the IPU devices does not "
        "support remote memory. Set offload_activations to False.",
    ),
    (
        {"gradient_accumulation_count": 6},
        Exception,
        "The number of iterations of the pipeline must be a multiple of 4, but it is 6. Use a count of 4 or 8",
    ),
    (
        {"gradient_accumulation_count": 2},
        Exception,
        "The number of iterations of the pipeline must be at least 4, but it is 2. Use a count of 4, 8, 12, ...",
    ),
    (
        {"gradient_accumulation_count": 5, "io_tiles": True},
        Exception,
        "The number of iterations of the pipeline must be at least 6, but it is 5. With I/O tiles a pipeline needs "
        "two more than its stages; raise the gradient accumulation count",
    ),
]


@pytest.mark.parametrize(("values", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_invalid_calls_are_refused(values: dict[str, Any], kind: type[Exception], text: str) -> None:
    arguments = {"computational_stages": [FIRST, LAST], "gradient_accumulation_count": 8, **TRAINING, **values}
    with pytest.raises(kind) as error:
        PipelineCall(**arguments)
    assert error.value.args[0] == text


def test_a_count_that_is_known_only_at_run_time_is_checked_then() -> None:
    counts = iter([8, 6])
    call = PipelineCall([FIRST, LAST], lambda: next(counts), **TRAINING)
    assert list(call.slots()) == list(schedule("grouped", 2, 8, training=True))
    with pytest.raises(EmulatorError) as error:
        call.slots()
    assert error.value.args[0] == (
        "Pipeline depth is invalid. The number of iterations of the pipeline must be a multiple of 4, but it is 6. "
        "Use a count of 4 or 8"
    )


def test_defaults() -> None:
    call = PipelineCall([FIRST, LAST], 8, **TRAINING)
    assert list(call.slots()) == list(schedule("grouped", 2, 8, training=True))
    serial = PipelineCall([FIRST, LAST], 2, batch_serialization_iterations=3, **TRAINING)
    assert list(serial.slots()) == list(schedule("sequential", 2, 2, training=True, iterations=3))
    inference = PipelineCall([FIRST, LAST], 4, outfeed_queue=OutfeedQueue())
    assert {task.what for slot in inference.slots() for task in slot} == {TaskType.FORWARD}


def test_all_that_fits_together() -> None:
    middle = [StageFunction("left", ("a",), ("w",)), StageFunction("right", ("b",), ("v",))]
    call = PipelineCall(
        [FIRST, middle, StageFunction("last", ("loss", "y"), shards=(0, 1))],
        6,
        **TRAINING,
        device_mapping=[0, [1, 2], -1],
        outfeed_mask=[False, True],
        reduction_method=ReductionMethod.RUNNING_MEAN,
        forward_propagation_stages_poplar_options=[PipelineStageOptions()] * 3,
        weight_update_poplar_options=PipelineStageOptions(),
        offload_activations=True,
        replicated_optimizer_state_sharding=True,
        allow_recompute=True,
    )
    tasks = [task for slot in call.slots() for task in slot]
    assert {task.ipu for task in tasks if task.stage == 1} == {1, 2}
    assert TaskType.RECOMPUTE in {task.what for task in tasks}
    check_program([call])


def test_shards_and_programs() -> None:
    check_shards(8, 2)
    with pytest.raises(Exception, match="number of shards") as error:
        check_shards(4, 3)
    assert error.value.args[0] == (
        "Trying to compile a graph for an IPU device with 4 IPUs and 3 shards. The number of shards needs to divide "
        "the number of IPUs."
    )
    call = PipelineCall([FIRST, LAST], 8, **TRAINING)
    with pytest.raises(Exception, match="Only a single") as error:
        check_program([call, call])
    assert error.value.args[0].startswith("Only a single ipu.pipeline() is allowed in a compiled program - ")
