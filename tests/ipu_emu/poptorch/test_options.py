"""Options: every setter of PopTorch's Options is accepted, can be read, and refuses invalid arguments."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.poptorch import enums  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

ON = poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
STRATEGY = poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement)
MATE = enums.CommGroupType.Orthogonal
RUNNING = poptorch.MeanReductionStrategy.Running

#: (category, setter, arguments, key, value to read, arguments that are refused, class of the error)
SETTERS = [
    ("", "deviceIterations", (4,), "device_iterations", 4, (1.5,), AssertionError),
    ("", "replicationFactor", (4,), "replication_factor", 4, (0,), ValueError),
    ("", "inputReplicaGrouping", (1, MATE), "input_cgt", MATE, (3, MATE), ValueError),
    ("", "outputMode", (poptorch.OutputMode.Sum,), "output_mode", poptorch.OutputMode.Sum, ("Sum",), AssertionError),
    ("", "outputMode", (poptorch.OutputMode.EveryN, 3), "output_return_period", 3,
     (poptorch.OutputMode.EveryN, 0), AssertionError),
    ("", "setExecutionStrategy", (STRATEGY,), "_execution_strategy", STRATEGY, ("sharded",), AssertionError),
    ("", "autoRoundNumIPUs", (), "auto_round_num_ipus", True, ("yes",), AssertionError),
    ("", "setAvailableMemoryProportion", ({"IPU0": 0.5},), "available_memory_proportion", {"IPU0": 0.5},
     ({"0": 0.5},), AssertionError),
    ("", "randomSeed", (7,), "random_seed", 7, ("7",), AssertionError),
    ("", "enableExecutableCaching", ("cache",), "executable_cache", "cache", (7,), AssertionError),
    ("", "useIpuModel", (True,), "use_model", True, (1,), AssertionError),
    ("", "useIpuId", (3,), "ipu_id", 3, ("3",), AssertionError),
    ("", "useOfflineIpuTarget", (21,), "ipu_version", 21, ("ipu21",), AssertionError),
    ("", "connectionType", (poptorch.ConnectionType.OnDemand,), "connection_type", poptorch.ConnectionType.OnDemand,
     (1,), AssertionError),
    ("", "syncPattern", (poptorch.SyncPattern.SinglePipeline,), "sync_pattern", poptorch.SyncPattern.SinglePipeline,
     ("Full",), AssertionError),
    ("", "broadcastBuffers", (False,), "broadcast_buffers", False, (0,), AssertionError),
    ("", "enableSyntheticData", (True,), "enable_synthetic_data", True, (1,), AssertionError),
    ("", "logCycleCount", (True,), "log_cycle_count", True, (1,), AssertionError),
    ("", "enableProfiling", ("reports",), "profile_dir", "reports", (7,), AssertionError),
    ("", "enableStableNorm", (True,), "stable_norm", True, (1,), AssertionError),
    ("", "modelName", ("one",), "model_name", "one", (1,), AssertionError),
    ("", "logDir", ("logs",), "log_dir", "logs", (1,), AssertionError),
    ("", "maxRepeatLogs", (None,), "max_repeat_logs", None, ("many",), AssertionError),
    ("", "disableModuleNamescope", (), "module_namescope_enabled", False, None, None),
    ("", "updatableNamedBuffers", (["a", "b"],), "updatable_named_buffers", ["a", "b"], ("ab",), AssertionError),
    ("", "showCompilationProgressBar", (False,), "show_compilation_progress_bar", False, (0,), AssertionError),
    ("", "relaxOptimizerAttributesChecks", (), "relax_optimizer_checks", True, (1,), AssertionError),
    ("Training", "gradientAccumulation", (8,), "gradient_accumulation", 8, (0,), ValueError),
    ("Training", "accumulationAndReplicationReductionType", (poptorch.ReductionType.Sum,),
     "accumulation_and_replication_reduction_type", poptorch.ReductionType.Sum,
     (poptorch.ReductionType.NoReduction,), ValueError),
    ("Training", "setMeanAccumulationAndReplicationReductionStrategy", (RUNNING,),
     "meanAccumulationAndReplicationReductionStrategy", RUNNING, (0,), AssertionError),
    ("Training", "setAutomaticLossScaling", (True,), "auto_loss_scaling", True, ("on",), AssertionError),
    ("Training", "setConvolutionDithering", (True,), "convolution_dithering", True, ("on",), AssertionError),
    ("Precision", "enableFloatingPointExceptions", (True,), "floating_point_exceptions", True, (1,), AssertionError),
    ("Precision", "enableStochasticRounding", (True,), "stochastic_rounding", True, (1,), AssertionError),
    ("Precision", "setPartialsType", (torch.half,), "partials_type", torch.half, (torch.int8,), ValueError),
    ("Precision", "halfFloatCasting", (enums.HalfFloatCastingBehavior.Default,), None, None, None, None),
    ("Precision", "runningStatisticsAlwaysFloat", (True,), None, None, None, None),
    ("Jit", "traceModel", (False,), "trace_model", False, (True,), ValueError),
    ("Distributed", "configureProcessId", (1, 2), "processId", 1, (2, 2), AssertionError),
    ("Distributed", "disable", (), "numProcesses", 1, None, None),
    ("Distributed", "setEnvVarNames", ("JOB_SIZE", "JOB_RANK"), "numProcesses", 4, ("HOME", "JOB_RANK"),
     AssertionError),
    ("TensorLocations", "numIOTiles", (64,), "num_io_tiles", 64, (31,), AssertionError),
    ("TensorLocations", "setActivationLocation", (ON,), "location_activation", ON, (True,), AssertionError),
    ("TensorLocations", "setWeightLocation", (ON,), "location_weight", ON, (True,), AssertionError),
    ("TensorLocations", "setOptimizerLocation", (ON,), "location_optimizer", ON, (True,), AssertionError),
    ("TensorLocations", "setAccumulatorLocation", (ON,), "location_accumulator", ON, (True,), AssertionError),
    ("_Popart", "set", ("outlineThreshold", 10.0), "options", {"outlineThreshold": 10.0}, None, None),
    ("_Popart", "setEngineOptions", ({"a": "b"},), "options", {"engineOptions": {"a": "b"}}, None, None),
    ("_Popart", "setPatterns", ({"OpToIdentity": False}, 1), "_patterns", {"OpToIdentity": False}, None, None),
]  # fmt: skip


def of(options, category):
    return getattr(options, category) if category else options


def content(value):
    """The content of a value, equal for its copies."""
    if isinstance(value, poptorch.TensorLocationSettings):
        return value.toDict()
    return type(value) if isinstance(value, poptorch.ShardedExecution) else value


@pytest.fixture(autouse=True)
def job(monkeypatch):
    """The variables of a job of another launcher, for the setter that names them."""
    monkeypatch.setenv("JOB_SIZE", "4")
    monkeypatch.setenv("JOB_RANK", "3")


@pytest.mark.parametrize("row", SETTERS, ids=lambda row: f"{row[0]}.{row[1]}".strip("."))
def test_a_setter_is_accepted_checked_and_refused_when_frozen(row):
    category, setter, arguments, key, value, wrong, error = row
    options = poptorch.Options().replicationFactor(2)
    group = of(options, category)
    assert getattr(group, setter)(*arguments) is group
    if key is not None:
        assert getattr(group, key) == value
        assert content(getattr(of(options.clone(), category), key)) == content(value)
    if wrong is not None:
        with pytest.raises(error):
            getattr(group, setter)(*wrong)
    poptorch.DataLoader(options, [1, 2])
    if setter not in ("halfFloatCasting", "runningStatisticsAlwaysFloat", "traceModel"):
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            getattr(group, setter)(*arguments)


@pytest.mark.parametrize(
    ("setter", "value"),
    [("minElementsForOffChip", 4), ("minElementsForReplicatedTensorSharding", 4), ("useOnChipStorage", False),
     ("useReplicatedTensorSharding", True), ("useIOTilesToLoad", True), ("useIOTilesToStore", True)],
)  # fmt: skip
def test_a_tensor_location_is_accepted_and_checked(setter, value):
    settings = poptorch.TensorLocationSettings()
    assert getattr(settings, setter)(value) is settings
    with pytest.raises(AssertionError, match="Unexpected type"):
        getattr(settings, setter)("many")


def test_names_without_the_paths_of_modules():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Sequential(torch.nn.ReLU())

        def forward(self, x):
            return self.layer(x)

    names = []
    for options in (poptorch.Options(), poptorch.Options().disableModuleNamescope()):
        model = poptorch.inferenceModel(Model(), options)
        model.compile(torch.ones(2))
        names.append([name for name in model.getTensorNames() if "Relu" in name])
    assert names[0][0].startswith("layer/0/Relu")
    assert names[1][0].startswith("Relu")


def test_all_values_are_shown():
    options = poptorch.Options().setExecutionStrategy(STRATEGY).modelName("one")
    options.Training.gradientAccumulation(8)
    for text in ("Options(", "device_iterations: 1", "model_name: 'one'", "gradient_accumulation: 8", "Sharded"):
        assert text in repr(options)


def test_the_executable_has_the_sync_pattern_of_the_options():
    model = poptorch.inferenceModel(
        torch.nn.Linear(1, 1), poptorch.Options().syncPattern(poptorch.SyncPattern.SinglePipeline)
    )
    model(torch.ones(1, 1))
    assert model._compiled_program().compiled.executable.sync == "SinglePipeline"


def test_an_invalid_profile_is_reported():
    with pytest.warns(UserWarning, match="writes no profile.pop"):
        poptorch.Options().enableProfiling()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("noSuchOption", True, "Unknown bool option noSuchOption"), ("noSuchOption", 3, "Unknown uint64 option"),
     ("noSuchOption", "x", "Unknown string option"), ("noSuchOption", object(), "Unknown value type")],
)  # fmt: skip
def test_an_unknown_session_option_is_refused_when_a_model_is_compiled(key, value, text):
    options = poptorch.Options()
    options._Popart.set(key, value)
    with pytest.raises(poptorch.Error, match=text):
        poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(1))


@pytest.mark.parametrize("name", ["autocast", "AnchorMode", "anchorMode", "noSuchSetter"])
def test_unknown_names_raise_attribute_error(name):
    with pytest.raises(AttributeError):
        getattr(poptorch.Options(), name)


@pytest.mark.filterwarnings("error")
def test_each_option_without_effect_is_named():
    options = poptorch.Options()
    values = {"available_memory_proportion": {"IPU0": 0.1}, "ipu_id": 1, "log_dir": "x", "max_repeat_logs": 2}
    values["model_name"] = "x"
    groups = (
        options,
        options.Training,
        options.Precision,
        options.TensorLocations,
        poptorch.TensorLocationSettings(),
    )
    for group in groups:
        for name in group.without_effect:
            value = values.get(name, True)
            with pytest.warns(UserWarning, match=f"The option {name} has no effect on emulated IPUs"):
                group.set(**{name: value})
            group.set(**{name: value})  # has no other value now
    with pytest.warns(UserWarning, match="partials_type has no effect"):
        options.Precision.setPartialsType(torch.half)
    options._Popart.set("outlineThreshold", 3.0)
    with pytest.warns(UserWarning, match="Session options outlineThreshold has no effect"):
        poptorch.inferenceModel(torch.nn.Identity(), options).compile(torch.ones(1))


@pytest.mark.filterwarnings("error")
def test_functions_and_settings_of_products_without_effect_are_named():
    x = torch.ones(2, 2)
    with pytest.warns(UserWarning, match="poptorch set_available_memory has no effect"):
        poptorch.set_available_memory(x, 0.1)
    with pytest.warns(UserWarning, match="poptorch serializedMatMul has no effect"):
        poptorch.serializedMatMul(x, x, poptorch.MatMulSerializationMode.ReducingDim, 2)
    for name in ("availableMemoryProportions", "partialsTypes", "enableConvDithering", "cycleBackOff"):
        with pytest.warns(UserWarning, match=f"The setting of MultiConv {name} has no effect"):
            getattr(poptorch.MultiConv(), name)(0.5)
