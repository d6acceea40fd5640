"""SessionOptions and devices: defaults, contradictions, and the texts of errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.hardware import System
from ipu_emu.session.options.settings import Settings
from tests.ipu_emu.helpers.sessions import options

DEFAULTS = {
    "enableReplicatedGraphs": False,
    "replicatedGraphCount": 1,
    "enableGradientAccumulation": False,
    "accumulationFactor": 1,
    "accumulationAndReplicationReductionType": popart.ReductionType.Sum,
    "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Post,
    "enableDistributedReplicatedGraphs": False,
    "globalReplicationFactor": 1,
    "globalReplicaOffset": 0,
    "virtualGraphMode": popart.VirtualGraphMode.Off,
    "enablePipelining": False,
    "autoRecomputation": popart.RecomputationType.NoRecompute,
    "syntheticDataMode": popart.SyntheticDataMode.Off,
    "enablePrefetchDatastreams": True,
    "defaultBufferingDepth": 1,
    "rearrangeAnchorsOnHost": True,
    "constantWeights": True,
    "enableEngineCaching": False,
    "cachePath": "session_cache",
    "compileEngine": True,
    "hardwareInstrumentations": {popart.Instrumentation.Outer},
    "swapLimitScheduler": 1e9,
    "delayVarUpdates": True,
    "engineOptions": {},
}


def test_defaults() -> None:
    opts = popart.SessionOptions()
    assert {name: getattr(opts, name) for name in DEFAULTS} == DEFAULTS
    assert opts.executionPhaseSettings.stages == 2
    assert opts.weightTensorLocationSettings.minElementsForReplicatedTensorSharding == 8192
    assert opts.automaticLossScalingSettings.binEdgeLocation == 0.125


def test_options_do_not_share_state() -> None:
    options, other = popart.SessionOptions(), popart.SessionOptions()
    options.engineOptions["anything"] = "1"
    options.weightTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    assert other.engineOptions == {}
    assert other.weightTensorLocationSettings.location.storage is popart.TensorStorage.OnChip


def test_unknown_names_suggest_the_right_one() -> None:
    opts = popart.SessionOptions()
    with pytest.raises(AttributeError, match=r"'enableReplicatedGraph'.*'enableReplicatedGraphs'"):
        opts.enableReplicatedGraph = True
    with pytest.raises(AttributeError, match="did you mean 'accumulationFactor'"):
        _ = opts.acumulationFactor


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("accumulationFactor", "8", "an integer"),
        ("accumulationFactor", 2.0, "an integer"),
        ("enablePipelining", "yes", "True or False"),
        ("virtualGraphMode", 1, "a VirtualGraphMode"),
        ("autoRecomputation", "Standard", "a RecomputationType"),
        ("outlineThreshold", "1", "a number"),
        ("pipelineSchedule", None, "a text"),
        ("virtualGraphSplitRatios", "12", "a list"),
        ("engineOptions", [1], "a dict"),
        ("weightTensorLocationSettings", popart.TensorStorage.OffChip, "a TensorLocationSettings"),
    ],
)
def test_values_of_the_wrong_type_are_refused(name: str, value: Any, what: str) -> None:
    with pytest.raises(TypeError) as error:
        setattr(popart.SessionOptions(), name, value)
    assert error.value.args[0] == f"SessionOptions.{name} is {value!r}; it must be {what}"


@pytest.mark.parametrize("value", [0.125, "w", 3])
def test_tracked_tensors_are_a_list_or_none(value: Any) -> None:
    with pytest.raises(TypeError, match=r"toTrackTensors is .*; it must be a list of ids of tensors, or None"):
        popart.AutomaticLossScalingSettings(True, value)
    assert popart.AutomaticLossScalingSettings(True, ("w",)).toTrackTensors == ["w"]


def test_values_of_another_type_that_fit() -> None:
    opts = popart.SessionOptions()
    opts.enablePipelining, opts.accumulationFactor, opts.outlineThreshold = np.bool_(True), np.int64(4), 1
    opts.virtualGraphSplitRatios = (1.0, 2.0)
    assert (opts.accumulation(), len(opts.virtualGraphSplitRatios), type(opts.accumulationFactor)) == (1, 2, int)


def test_old_names_still_work() -> None:
    opts = popart.SessionOptions()
    opts.defaultPrefetchBufferingDepth = 4
    assert opts.defaultBufferingDepth == opts.defaultPrefetchBufferingDepth == 4


def test_explicit_ir_sets_three_options() -> None:
    opts = popart.SessionOptions()
    opts.enableExplicitIR(True)
    assert (opts.useHostCopyOps, opts.enableExplicitMainLoops, opts.explicitRecomputation) == (True, True, True)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({}, 1),
        ({"R": 4}, 4),
        ({"R": 4, "enableDistributedReplicatedGraphs": True, "globalReplicationFactor": 8}, 8),
        ({"globalReplicationFactor": 8}, 1),
    ],
)
def test_global_replication_factor(values: dict[str, Any], want: int) -> None:
    assert options(**values).getGlobalReplicationFactor() == want


def prepare(opts: popart.SessionOptions, info: popart.DeviceInfo | None = None, *, training: bool = True) -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.identityloss([w])
    info = info or popart.DeviceManager().acquireAvailableDevice(opts.localReplicas())
    flow = popart.DataFlow(1, [loss])
    if training:
        session: Any = popart.TrainingSession(
            builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), info, userOptions=opts
        )
    else:
        session = popart.InferenceSession(builder.getModelProto(), flow, info, userOptions=opts)
    session.prepareDevice()


DISTRIBUTED = {"enableDistributedReplicatedGraphs": True}
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"replicatedGraphCount": 2},
        "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable replication, or set the "
        "replicated graph count to 1",
    ),
    (
        {"accumulationFactor": 2},
        "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable gradient accumulation, or "
        "set the accumulation factor to 1",
    ),
    ({"enableExplicitMainLoops": True}, "enableExplicitMainLoops requires useHostCopyOps."),
    (
        {"accumulationAndReplicationReductionType": popart.ReductionType.NoReduction},
        "accumulationAndReplicationReductionType is NoReduction, but gradients of micro-batches and replicas become "
        "one; use Sum or Mean",
    ),
    (
        {**DISTRIBUTED, "globalReplicationFactor": 0},
        "Invalid globalReplicationFactor value: 0, must be greater or equal than 1",
    ),
    (
        {**DISTRIBUTED, "globalReplicaOffset": -1},
        "Invalid globalReplicaOffset value: -1, must be greater or equal than 0",
    ),
    (
        {**DISTRIBUTED, "globalReplicaOffset": 3, "globalReplicationFactor": 2},
        "Global replica offset: 3, is larger than global replication factor: 2",
    ),
    ({**DISTRIBUTED, "enableReplicatedGraphs": True}, "Local replicated graphs enabled but replication factor is 1"),
    (
        {**DISTRIBUTED, "R": 4, "globalReplicationFactor": 2},
        "Invalid local replication factor: 4, larger than global replication factor: 2",
    ),
]


@pytest.mark.parametrize(("values", "text"), CONTRADICTIONS)
def test_contradictions(values: dict[str, Any], text: str) -> None:
    with pytest.raises(popart.popart_exception) as error:
        prepare(options(**values))
    assert error.value.args[0] == text


def test_too_many_execution_phases() -> None:
    opts = options()
    opts.executionPhaseSettings.phases = 2
    with pytest.raises(
        popart.popart_exception, match=r"^> 1 execution phases requires VirtualGraphMode::ExecutionPhases$"
    ):
        prepare(opts)


def test_accumulation_is_for_training() -> None:
    with pytest.raises(popart.popart_exception, match=r"^Gradient Accumulation only available when training.$"):
        prepare(options(A=2), training=False)


class TestPlacement:
    def test_distributed_runs_need_ipus(self) -> None:
        model = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
        with pytest.raises(popart.popart_exception) as error:
            prepare(options(enableDistributedReplicatedGraphs=True), model)
        assert error.value.args[0] == (
            "Only IPU Hardware devices supported with distributed replicated graphs. Unsupported device type "
            "ipu-model"
        )

    def test_instances_that_are_not_there(self) -> None:
        opts = options(R=2, globalReplicationFactor=8, globalReplicaOffset=2, **DISTRIBUTED)
        with pytest.raises(popart.popart_exception, match=r"^The replicas of the instances are inconsistent"):
            prepare(opts)

    def test_ipus_that_do_not_divide(self) -> None:
        info = popart.DeviceManager().createSimDevice({"numIPUs": 3})
        with pytest.raises(popart.popart_exception) as error:
            prepare(options(R=2), info)
        assert error.value.args[0] == (
            "For replicated graphs, the number of IPUs must be divisible by the replication factor."
        )

    def test_replicas_of_an_ipu_model(self) -> None:
        info = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
        with pytest.raises(popart.popart_exception, match=r"2 replicas.*IPU Model"):
            prepare(options(R=2), info)

    def test_more_ipus_than_replicas(self) -> None:
        info = popart.DeviceManager().acquireAvailableDevice(4)
        with pytest.raises(popart.popart_exception) as error:
            prepare(options(R=2), info)
        assert error.value.args[0] == (
            "If virtual graphs are disabled, the replicated graph count (2) needs to be equal to the number of "
            "IPUs (4)"
        )

    def test_an_offline_device_compiles_but_does_not_run(self) -> None:
        info = popart.DeviceManager().createOfflineIPUDevice({"numIPUs": 1, "syncPattern": "full"})
        builder = popart.Builder()
        y = builder.aiOnnx.exp([builder.addInputTensor("FLOAT", [1])])
        session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), info)
        session.prepareDevice()
        with pytest.raises(popart.popart_exception, match=r"^Offline IPU device is not configured for execution$"):
            session.run(popart.PyStepIO({"input": np.zeros(1, np.float32)}, session.initAnchorArrays()))


class TestDevices:
    def test_a_pod16_is_emulated(self) -> None:
        manager = popart.DeviceManager(System.named("pod16"))
        assert [len(manager.enumerateDevices(numIpus=n)) for n in (1, 2, 4, 8, 16, 32)] == [16, 8, 4, 2, 1, 0]
        with manager.acquireAvailableDevice(4) as info:
            assert (info.type, info.numIpus, info.driverIds) == (popart.DeviceType.Ipu, 4, [0, 1, 2, 3])
        with manager.acquireDeviceById(17) as info:
            assert info.driverIds == [2, 3]
        assert manager.tryAcquireAvailableDevice(32) is None
        with manager.tryAcquireAvailableDevice(np.int64(2)) as info:
            assert info.numIpus == 2

    def test_a_context_detaches_at_its_end(self) -> None:
        with popart.DeviceManager().acquireAvailableDevice() as info:
            assert info.isAttached
        assert not info.isAttached

    def test_described_devices(self) -> None:
        manager = popart.DeviceManager()
        model = manager.createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 4})
        assert (model.type, model.numIpus, model.tilesPerIPU) == (popart.DeviceType.IpuModel, 2, 4)
        offline = manager.createOfflineIPUDevice({"numIPUs": 2, "syncPattern": "replicaAndLadder"})
        assert offline.syncPattern is popart.SyncPattern.ReplicaAndLadder
        assert not offline.attach()
        assert manager.createCpuDevice().type is popart.DeviceType.Cpu

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (
                lambda m: m.acquireAvailableDevice(3),
                "You have attempted to acquire 3 IPUs. The number of IPUs requested must be a power of two",
            ),
            (
                lambda m: m.tryAcquireAvailableDevice(6),
                "You have attempted to acquire 6 IPUs. The number of IPUs requested must be a power of two",
            ),
            (
                lambda m: m.acquireDeviceById(99, connectionType=popart.DeviceConnectionType.Never),
                "Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never",
            ),
            (
                lambda m: m.acquireAvailableDevice(32, connectionType=popart.DeviceConnectionType.Never),
                "Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never",
            ),
            (
                lambda m: m.acquireAvailableDevice(32),
                "Failed to acquire device with 32 IPUs. Ensure that there are sufficient IPUs available. If "
                "you have enabled the Poplar SDK you can check device availability with the `gc-monitor` "
                "command-line utility.",
            ),
            (
                lambda m: m.acquireDeviceById(99),
                "Failed to acquire device with id '99'. Ensure it is available. If you have enabled the "
                "Poplar SDK you can check device availability with the `gc-monitor` command-line utility.",
            ),
            (
                lambda m: m.acquireAvailableDevice("2"),
                "numIpus is a number of IPUs, not '2'; use 1, 2, 4, ...",
            ),
            (
                lambda m: m.acquireAvailableDevice(2, pattern="ladder"),
                "Unknown sync pattern 'ladder'; use one of full, singlePipeline, replicaAndLadder",
            ),
            (lambda m: m.createIpuModelDevice({"numIPUs": 0}), "numIPUs is 0; use an integer of at least 1"),
            (
                lambda m: m.createIpuModelDevice({"tilesPerIPU": "x"}),
                "tilesPerIPU is 'x'; use an integer of at least 1",
            ),
            (
                lambda m: m.createIpuModelDevice({"ipuVersion": "ipu9"}),
                "ipuVersion 'ipu9' does not exist; use ipu1, ipu2, ipu21",
            ),
            (
                lambda m: m.createIpuModelDevice({"numIpus": 1}),
                "Invalid option `numIpus' passed to DevicexManager::createHostDevice for device type ipu-model. "
                "Valid options are numIPUs, tilesPerIPU, compileIPUCode, ipuVersion; did you mean 'numIPUs'?",
            ),
        ],
    )
    def test_errors(self, call: Any, text: str) -> None:
        with pytest.raises(popart.popart_exception) as error:
            call(popart.DeviceManager())
        assert error.value.args[0] == text


def test_enum_numbers() -> None:
    assert [int(member) for member in popart.CommGroupType] == [0, 1, 2, 3]
    assert int(popart.CollectiveOperator.Local) == 8
    assert popart.BatchSerializationTransformContext.Fwd is popart.BatchSerializationTransformContext.Forward


def test_exceptions_form_the_tree_of_the_reference() -> None:
    assert issubclass(popart.popart_internal_exception, popart.popart_exception)
    assert issubclass(popart.popart_runtime_error, popart.popart_exception)
    assert issubclass(popart.OutOfMemoryException, popart.popart_exception)
    assert issubclass(popart.poplar_application_runtime_error, popart.poplar_runtime_error)
    assert issubclass(popart.poplar_unrecoverable_runtime_error, popart.poplar_system_runtime_error)
    assert not issubclass(popart.poplar_exception, popart.popart_exception)
    names = [name for name in dir(popart) if name.endswith(("_exception", "_error", "MemoryException"))]
    assert [getattr(popart, name).__name__ for name in names] == names


def test_patterns_are_attributes_too() -> None:
    patterns = popart.Patterns(popart.PatternsLevel.NoPatterns).enablePattern("OpToIdentity", True)
    patterns.InPlace = True
    assert (patterns.InPlace, patterns.OpToIdentity, patterns.SplitGather) == (True, True, False)
    patterns.InPlace = False
    assert not patterns.isPatternEnabled("InPlace")
    with pytest.raises(AttributeError, match="a pattern's name begins with a capital"):
        patterns.inPlace = True


def test_levels_and_lists_of_patterns() -> None:
    on = {level: popart.Patterns(level).InPlace for level in popart.PatternsLevel}
    minimal, none = popart.PatternsLevel.Minimal, popart.PatternsLevel.NoPatterns
    assert {level for level, enabled in on.items() if not enabled} == {minimal, none}
    chosen = popart.Patterns(["SplitGather"]).enableRuntimeAsserts(False)
    assert (chosen.SplitGather, chosen.InPlace, chosen.runtime_asserts) == (True, False, False)


def test_a_storage_stands_for_a_location() -> None:
    settings = popart.TensorLocationSettings(popart.TensorStorage.OffChip, 4, 16)
    assert settings.location.storage is popart.TensorStorage.OffChip
    assert settings.location.replicatedTensorSharding is popart.ReplicatedTensorSharding.Off
    assert (settings.minElementsForOffChip, settings.minElementsForReplicatedTensorSharding) == (4, 16)


def test_settings_are_equal_where_their_values_are() -> None:
    group, other = (popart.CommGroup(popart.CommGroupType.Consecutive, size) for size in (2, 4))
    assert group == popart.CommGroup(popart.CommGroupType.Consecutive, replicaGroupSize=2) != other
    assert popart.TensorLocation() == popart.TensorLocationSettings().location != group
    with pytest.raises(TypeError, match="CommGroup"):
        _ = {group}


def test_numbers_of_numpy_are_kept_as_those_of_python() -> None:
    options = popart.SessionOptions()
    options.replicatedGraphCount, options.outlineThreshold, options.enablePipelining = (
        np.int64(2),
        np.float32(2),
        np.True_,
    )
    assert type(options.replicatedGraphCount) is int
    assert type(options.outlineThreshold) is float
    assert options.enablePipelining is True
    flow = popart.DataFlow(np.int64(4), {"x": popart.AnchorReturnType("EveryN", np.int32(2))})
    assert (type(flow.batchesPerStep()), type(flow.art("x").rp())) == (int, int)


def test_copies_share_nothing_that_can_change() -> None:
    opts = popart.SessionOptions()
    opts.replicatedGraphCount = 3
    opts.batchSerializationSettings.factor = 5
    copies = [popart.SessionOptions(), copy.deepcopy(opts)]
    assert copies[1] == opts
    assert copies[0] != opts
    lists = [name for name, value in vars(opts).items() if isinstance(value, list | set | dict | Settings)]
    assert "batchSerializationSettings" in lists
    for copied in copies:
        assert [name for name in lists if getattr(copied, name) is getattr(opts, name)] == []
        assert [name for name in lists if getattr(copied, name) is popart.SessionOptions.defaults[name]] == []
    both = copy.deepcopy([opts, opts])
    assert both[0] is both[1]
