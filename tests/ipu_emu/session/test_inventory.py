"""Inventory: each session option, option of PopTorch, option of GCL and engine option has an effect, or a warning.

The rows are compared with the tables of the code, so that an option without a row fails. Options without effect are
in ``test_settings_without_effect.py`` and ``test_options.py``, those of TensorFlow in ``test_settings.py``.
"""

from pathlib import Path

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.session.options.settings import Settings
from tests.helpers.inventory_page import assert_counts

TESTS = Path(__file__).parents[2]

OFF, ON = popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On
PIPELINE = {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual}
ACCUMULATED = {"enableGradientAccumulation": True, "accumulationFactor": 4}
REPLICATED = {"enableReplicatedGraphs": True, "replicatedGraphCount": 2}
SCALED = {"automaticLossScalingSettings.enabled": True}
STORED = {"minElementsForOffChip": 0, "minElementsForReplicatedTensorSharding": 0}


def stored(kind, **values):
    return {f"{kind}TensorLocationSettings.{name}": value for name, value in (STORED | values).items()}


LEAST = "TensorLocationSettings.minElementsForReplicatedTensorSharding"
SHARDED_STATES = REPLICATED | stored("optimizerState", **{"location.replicatedTensorSharding": ON})
SHARDED = SHARDED_STATES | stored("weight", **{"location.replicatedTensorSharding": ON})


def domains(kind, size):
    """Weights and states that 4 replicas shard in groups."""
    group = popart.CommGroup(kind, size)
    names = (f"{stored}TensorLocationSettings.location.shardingDomain" for stored in ("weight", "optimizerState"))
    return SHARDED | {"replicatedGraphCount": 4} | dict.fromkeys(names, group)


#: Options that change the program, the plan or the modelled time of a step: (settings before, settings after).
SEEN = {
    "enableReplicatedGraphs": ({}, REPLICATED),
    "enableGradientAccumulation": ({}, ACCUMULATED),
    "accumulationFactor": (ACCUMULATED, ACCUMULATED | {"accumulationFactor": 8}),
    "meanAccumulationAndReplicationReductionStrategy": tuple(
        ACCUMULATED | {"accumulationAndReplicationReductionType": popart.ReductionType.Mean}
        | {"meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy[name]}
        for name in ("Post", "Running")
    ),
    "enablePipelining": ({"virtualGraphMode": popart.VirtualGraphMode.Manual} | ACCUMULATED, PIPELINE | ACCUMULATED),
    "virtualGraphMode": ({}, {"virtualGraphMode": popart.VirtualGraphMode.Manual}),
    "pipelineSchedule": (PIPELINE | ACCUMULATED, PIPELINE | ACCUMULATED | {"pipelineSchedule": "sequential"}),
    "syntheticDataMode": ({}, {"syntheticDataMode": popart.SyntheticDataMode.Zeros}),
    "defaultBufferingDepth": ({}, {"defaultBufferingDepth": 3}),
    "bufferingDepthMap": ({}, {"bufferingDepthMap": {"input": 3}}),
    "enableStochasticRounding": ({}, {"enableStochasticRounding": True}),
    "automaticLossScalingSettings.enabled": ({}, SCALED),
    "automaticLossScalingSettings.updatePeriod": (SCALED, SCALED | {"automaticLossScalingSettings.updatePeriod": 2}),
    "gclOptions": (REPLICATED, REPLICATED | {"gclOptions": {"maximum_reduce_many_buffer_size": 16}}),
    **{
        f"{kind}TensorLocationSettings.location.storage": (stored(kind), stored(kind, **{"location.storage": OFF}))
        for kind in ("weight", "optimizerState")
    },
    "optimizerStateTensorLocationSettings.location.replicatedTensorSharding": (REPLICATED, SHARDED_STATES),
    "weightTensorLocationSettings.location.replicatedTensorSharding": (SHARDED_STATES, SHARDED),
    **{
        f"{kind}TensorLocationSettings.minElementsForOffChip": (
            stored(kind, **{"location.storage": OFF}),
            stored(kind, **{"location.storage": OFF, "minElementsForOffChip": 10**6}),
        )
        for kind in ("weight", "optimizerState")
    },
    "accumulatorTensorLocationSettings.minElementsForOffChip": tuple(
        ACCUMULATED | stored("accumulator", **{"location.storage": OFF, "minElementsForOffChip": least})
        for least in (0, 10**6)
    ),
    "activationTensorLocationSettings.minElementsForOffChip": tuple(
        PIPELINE | ACCUMULATED | stored("activation", **{"location.storage": OFF, "minElementsForOffChip": least})
        for least in (0, 10**6)
    ),
    **{
        f"{kind}TensorLocationSettings.location.shardingDomain.{name}": (domains(*before), domains(*after))
        for kind in ("weight", "optimizerState")
        for name, before, after in (
            ("type", (popart.CommGroupType.All, 0), (popart.CommGroupType.Consecutive, 2)),
            ("replicaGroupSize", (popart.CommGroupType.Consecutive, 4), (popart.CommGroupType.Consecutive, 2)),
        )
    },
    "optimizerStateTensorLocationSettings.minElementsForReplicatedTensorSharding": (
        SHARDED_STATES, SHARDED_STATES | {f"optimizerState{LEAST}": 10**6},
    ),
    "weightTensorLocationSettings.minElementsForReplicatedTensorSharding": (
        SHARDED, SHARDED | {f"weight{LEAST}": 10**6},
    ),
    "accumulatorTensorLocationSettings.location.storage": (
        ACCUMULATED | stored("accumulator"), ACCUMULATED | stored("accumulator", **{"location.storage": OFF}),
    ),
    "activationTensorLocationSettings.location.storage": (
        PIPELINE | ACCUMULATED | stored("activation"),
        PIPELINE | ACCUMULATED | stored("activation", **{"location.storage": OFF}),
    ),
}  # fmt: skip


#: All other options with an effect, by the test that sees it.
SHOWN = {
    "popart/session/test_session.py::test_replicas_share_weights_and_see_their_own_data": "replicatedGraphCount",
    "compiler/rewriting/test_stochastic_rounding.py::test_small_gradients_of_replicas_are_not_lost": (
        "accumulationAndReplicationReductionType"
    ),
    "engine/test_io_loop.py::test_numbers_of_io_tiles": "numIOTiles",
    "popart/options/test_session_options.py::test_global_replication_factor": (
        "enableDistributedReplicatedGraphs globalReplicationFactor globalReplicaOffset"
    ),
    "compiler/placement/test_assign_ipus.py::test_split_ratios_say_how_large_the_shares_are": (
        "virtualGraphSplitRatios"
    ),
    "engine/pipeline/test_concurrent_stages.py::test_a_stage_loops_over_micro_batches": "pipelineBatchSerialization",
    "engine/pipeline/test_sharded_stages.py::test_without_the_option_it_is_refused": (
        "pipelineConcurrentStages pipelineShardedStages"
    ),
    "compiler/gradients/test_recomputation.py::test_no_bit_differs": "autoRecomputation",
    "popart/ir/test_serialised_ir.py::test_recomputed_ops_say_so": "explicitRecomputation",
    "popart/ir/test_serialised_ir.py::test_host_copies_and_reductions_of_replicas": "useHostCopyOps",
    "compiler/placement/test_placement_rules.py::test_a_pipelined_inference_needs_no_accumulation": (
        "enableExplicitMainLoops createImplicitPipeliningFwdOnlyProgram"
    ),
    "compiler/placement/test_assign_ipus.py::test_execution_phases_take_turns_on_the_ipus": (
        "executionPhaseSettings.phases executionPhaseSettings.stages"
    ),
    "compiler/lowering/test_weight_preloading.py::test_compute_hides_a_part_of_modelled_loads": (
        "executionPhaseSettings.weightIOSchedule"
    ),
    "compiler/memory/test_offloading.py::test_single_tensors_and_ops_can_be_chosen": "tensorLocationSettingsOverride",
    "popart/session/test_step_io.py::test_a_callback_may_refuse_to_prefetch": "enablePrefetchDatastreams",
    "popart/session/test_saved_models.py::test_accumulators_are_saved_as_zeros_unless_they_are_not_streamed": (
        "disableGradAccumulationTensorStreams"
    ),
    "popart/session/test_session.py::test_constant_weights_are_refused": "constantWeights",
    "onnx/test_imported_training.py::test_a_list_of_what_is_trained_is_checked": "trainedWeights",
    "engine/calls/test_floating_point_checks.py::test_nan_stops_the_step": "enableFloatingPointChecks",
    "compiler/rewriting/test_stochastic_rounding.py::test_the_state_of_random_numbers_can_be_kept": (
        "enableLoadAndOffloadRNGState"
    ),
    "onnx/test_supported_types.py::test_types_on_the_device": "enableSupportedDataTypeCasting",
    "compiler/optimisers/test_automatic_loss_scaling.py::test_models_that_are_refused": (
        "automaticLossScalingSettings.toTrackTensors automaticLossScalingSettings.gradientTensorTrackingMethod"
    ),
    "compiler/optimisers/test_automatic_loss_scaling.py::test_the_factor_follows_the_gradients": (
        "automaticLossScalingSettings.binEdgeLocation"
    ),
    "compiler/optimisers/test_automatic_loss_scaling.py::test_a_share_of_large_elements_is_allowed": (
        "automaticLossScalingSettings.thresholdUpperCountProportion"
    ),
    "compiler/optimisers/test_automatic_loss_scaling.py::test_the_loss_scaling_may_be_a_float_without_adapting": (
        "ensureFp32LossScaleTensor"
    ),
    "ops/normalisation/test_group_norm.py::test_channels_form_groups_as_the_option_says": (
        "groupNormStridedChannelGrouping"
    ),
    "ops/control/test_loop_and_while.py::test_an_executable_with_a_loop_is_kept": "enableEngineCaching cachePath",
    "popart/session/test_session_queries.py::test_wall_time_is_accounted_for": (
        "instrumentWithHardwareCycleCounter hardwareInstrumentations"
    ),
    "compiler/memory/test_offloading.py::test_streaming_memory_can_be_a_file": "engineOptions",
    "session/test_inventory.py::test_an_option_that_changes_the_program": " ".join(SEEN),
}


def options_with_effect(settings, prefix=""):
    for name in settings.defaults:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from options_with_effect(value, f"{prefix}{name}.")
        elif name not in settings.without_effect:
            yield f"{prefix}{name}"


def settings_of(settings):
    yield settings
    for name in settings.defaults:
        if isinstance(value := getattr(settings, name), Settings):
            yield from settings_of(value)


#: Options of tensors that are never sharded, whose sharding a warning names.
SAID = {
    f"{kind}TensorLocationSettings.{name}"
    for kind in ("accumulator", "activation")
    for name in (
        "location.replicatedTensorSharding",
        "location.shardingDomain.type",
        "location.shardingDomain.replicaGroupSize",
        "minElementsForReplicatedTensorSharding",
    )
}


def test_every_session_option_has_a_row():
    rows = [*" ".join(SHOWN.values()).split(), *SAID]
    assert len(rows) == len(set(rows))
    assert sorted(rows) == sorted(options_with_effect(popart.SessionOptions()))
    without = sum(len(settings.without_effect) for settings in settings_of(popart.SessionOptions()))
    assert_counts("session options of PopART", len(rows) - len(SAID), 0, len(SAID) + without)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("accumulator", "Accumulators of gradients stay whole"),
        ("activation", r"activationTensorLocationSettings\.location\.replicatedTensorSharding has no effect"),
    ],
)
def test_sharding_of_tensors_that_are_not_sharded_is_named(kind, words):
    settings = REPLICATED | stored(kind, **{"location.replicatedTensorSharding": ON})
    with pytest.warns(UserWarning, match=words):
        session(settings)


@pytest.mark.parametrize("shown", SHOWN)
def test_a_row_names_a_test(shown):
    file, _, name = shown.partition("::")
    text = (TESTS / "ipu_emu" / file).read_text()
    assert f"def {name}(" in text
    helpers = "".join(path.read_text() for path in (TESTS / "ipu_emu/helpers").glob("*.py"))
    words = {option.rpartition(".")[2] for option in SHOWN[shown].split()}
    assert {word for word in words if word not in text + helpers} == set()


def session(settings):
    """A training session of two layers in FLOAT16 with these settings, which have dots in their names."""
    options = popart.SessionOptions()
    for name, value in settings.items():
        *parents, last = name.split(".")
        target = options
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, value)
    manual = options.virtualGraphMode is popart.VirtualGraphMode.Manual
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [4, 8]), "input")
    for number in range(2):
        weight = builder.addInitializedInputTensor(np.full((8, 8), 0.01, np.float16))
        for kind, inputs in ((builder.aiOnnx.matmul, [x, weight]), (builder.aiOnnx.tanh, None)):
            x = kind(inputs or [x])
            if manual:
                builder.virtualGraph(x, number)
    loss = builder.aiGraphcore.identityloss([x], popart.ReductionType.Sum)
    if manual:
        builder.virtualGraph(loss, 1)
    device = popart.DeviceManager().createSimDevice(
        {"numIPUs": options.localReplicas() * (1 + manual), "tilesPerIPU": 1472}
    )
    adam = popart.Adam({"lossScaling": (2.0, False)})
    training = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(2, [loss]), loss, adam, device, userOptions=options
    )
    training.prepareDevice()
    return training


@pytest.mark.parametrize("name", SEEN)
def test_an_option_that_changes_the_program(name):
    texts = [str(session(settings).executable) for settings in SEEN[name]]
    assert texts[0] != texts[1]
