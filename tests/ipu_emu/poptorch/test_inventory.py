"""Inventory of PopTorch's options: each setter has an effect, or a warning names it, or a test sees its refusal.

The rows are compared with the setters of the classes, so that one without a row fails.
"""

import inspect
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from tests.helpers.inventory_page import assert_counts  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TESTS = Path(__file__).parents[2]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8).half(), torch.nn.Linear(8, 8).half()

    def forward(self, x):
        with poptorch.Block("A", ipu_id=0):
            x = torch.tanh(self.first(x))
        with poptorch.Block("B", ipu_id=1):
            x = self.second(x)
            return x, poptorch.identity_loss(x, "sum")


def text(change, *, pipelined=False, batch=8):
    """The program, its plan and its modelled time after ``change`` of the options."""
    options = poptorch.Options()
    if not pipelined:
        options.setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage("A", "B").ipu(0)))
    change(options)
    model = Model()
    adam = poptorch.optim.Adam(model.parameters(), lr=0.1, loss_scaling=2.0)
    training = poptorch.trainingModel(model, options, adam)
    training.compile(torch.ones(options.batches * batch, 8).half())
    report = f"{training.getReport()} {training.modelledSeconds()}"
    training.destroy()
    return report


def accumulate(options):
    return options.Training.gradientAccumulation(4)


def location(**settings):
    settings_made = (
        poptorch.TensorLocationSettings().minElementsForOffChip(0).minElementsForReplicatedTensorSharding(0)
    )
    for name, value in settings.items():
        getattr(settings_made, name)(value)
    return settings_made


OFF = {"useOnChipStorage": False}
#: Setters that change the program, its plan or its modelled time.
SEEN = {
    "deviceIterations": lambda options: options.deviceIterations(2),
    "replicationFactor": lambda options: options.replicationFactor(2),
    "setExecutionStrategy": lambda options: options.setExecutionStrategy(
        poptorch.ShardedExecution(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1))
    ),
    "outputMode": lambda options: (options.deviceIterations(2), options.outputMode(poptorch.OutputMode.All)),
    "enableSyntheticData": lambda options: options.enableSyntheticData(True),
    "Training.gradientAccumulation": accumulate,
    "Training.setAutomaticLossScaling": lambda options: options.Training.setAutomaticLossScaling(True),
    "Training.setMeanAccumulationAndReplicationReductionStrategy": lambda options: (
        accumulate(options).setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)
    ),
    "Precision.enableStochasticRounding": lambda options: options.Precision.enableStochasticRounding(True),
    "TensorLocations.numIOTiles": lambda options: options.TensorLocations.numIOTiles(64),
    "TensorLocations.setWeightLocation": lambda options: options.TensorLocations.setWeightLocation(location(**OFF)),
    "TensorLocations.setOptimizerLocation": lambda options: options.TensorLocations.setOptimizerLocation(
        location(**OFF)
    ),
    "TensorLocations.setAccumulatorLocation": lambda options: (
        accumulate(options), options.TensorLocations.setAccumulatorLocation(location(**OFF)),
    ),
}  # fmt: skip
#: What else the settings in a row change, before which the program is compared.
BEFORE = {
    "outputMode": lambda options: options.deviceIterations(2),
    "Training.setMeanAccumulationAndReplicationReductionStrategy": accumulate,
    "TensorLocations.setAccumulatorLocation": accumulate,
}

#: All other setters, by the test or program that sees their effect or their refusal.
SHOWN = {
    "ipu_emu/poptorch/test_inventory.py::test_executables_are_kept_in_a_folder": "enableExecutableCaching",
    "ipu_emu/poptorch/test_inventory.py::test_a_seed_decides_random_numbers": "randomSeed",
    "ipu_emu/poptorch/test_inventory.py::test_activations_of_a_pipeline_are_off_chip": (
        "TensorLocations.setActivationLocation"
    ),
    "ipu_emu/poptorch/test_inventory.py::test_deprecated_settings_are_named": (
        "enableProfiling Precision.halfFloatCasting Precision.runningStatisticsAlwaysFloat Jit.traceModel"
    ),
    "ipu_emu/poptorch/test_inventory.py::test_the_variables_of_processes_have_names": "Distributed.setEnvVarNames",
    "ipu_emu/poptorch/test_options.py::test_each_option_without_effect_is_named": (
        "setAvailableMemoryProportion useIpuId enableStableNorm modelName logDir maxRepeatLogs "
        "Training.setConvolutionDithering Precision.setPartialsType"
    ),
    "ipu_emu/poptorch/test_options.py::test_the_executable_has_the_sync_pattern_of_the_options": "syncPattern",
    "ipu_emu/poptorch/test_options.py::test_names_without_the_paths_of_modules": "disableModuleNamescope",
    "ipu_emu/poptorch/test_options.py::test_a_setter_is_accepted_checked_and_refused_when_frozen": (
        "showCompilationProgressBar"
    ),
    "programs/poptorch/outputs.py": "anchorTensor logCycleCount",
    "programs/poptorch/pipeline.py": "autoRoundNumIPUs",
    "ipu_emu/poptorch/test_executor.py": "broadcastBuffers",
    "programs/poptorch/names.py": "connectionType",
    "programs/poptorch/option_files.py": "from_json loadFromFile",
    "ipu_emu/poptorch/test_replica_grouping.py": "inputReplicaGrouping",
    "programs/poptorch/checkpointing.py": "relaxOptimizerAttributesChecks useOfflineIpuTarget",
    "programs/poptorch/lifecycle.py": "updatableNamedBuffers",
    "ipu_emu/poptorch/test_inventory.py::test_an_ipu_model_has_any_number_of_ipus_and_no_replicas": "useIpuModel",
    "ipu_emu/poptorch/test_specified_names.py": (
        "Training.accumulationAndReplicationReductionType Distributed.disable"
    ),
    "programs/poptorch/errors.py": "Precision.enableFloatingPointExceptions",
    "ipu_emu/poptorch/test_data.py": "Distributed.configureProcessId",
}

#: Methods that are no setters.
OTHERS = {"defaultOutputMode", "clone", "toDict", "settings"}


def setters():
    options = poptorch.Options()
    groups = {"": options, "Training.": options.Training, "Precision.": options.Precision, "Jit.": options.Jit}
    groups |= {"Distributed.": options.Distributed, "TensorLocations.": options.TensorLocations}
    for prefix, group in groups.items():
        own = [
            name
            for kind in type(group).__mro__[:1]
            for name, member in vars(kind).items()
            if inspect.isfunction(member)
        ]
        yield from (f"{prefix}{name}" for name in own if not name.startswith("_") and name not in OTHERS)


def test_every_setter_has_a_row():
    rows = [*SEEN, *" ".join(SHOWN.values()).split()]
    assert sorted(rows) == sorted(setters())
    said = [row for test, names in SHOWN.items() if test.endswith(("is_named", "are_named")) for row in names.split()]
    assert_counts("options of PopTorch", len(rows) - len(said), 0, len(said))


@pytest.mark.parametrize("shown", SHOWN)
def test_a_row_names_a_test(shown):
    file, _, name = shown.partition("::")
    source = (TESTS / file).read_text()
    assert not name or f"def {name}(" in source
    if name != "test_each_option_without_effect_is_named":  # it takes the names from the classes
        assert [test for test in SHOWN[shown].split() if test.rpartition(".")[2] not in source] == []


@pytest.mark.parametrize("name", SEEN)
def test_an_option_that_changes_the_program(name):
    assert text(BEFORE.get(name, lambda options: None)) != text(SEEN[name])


def test_activations_of_a_pipeline_are_off_chip():
    def change(options):
        options.TensorLocations.setActivationLocation(location(**OFF))
        accumulate(options)

    assert text(accumulate, pipelined=True) != text(change, pipelined=True)


def test_executables_are_kept_in_a_folder(tmp_path):
    text(lambda options: options.enableExecutableCaching(str(tmp_path)))
    assert list(tmp_path.iterdir())


def test_a_seed_decides_random_numbers():
    def values(seed):
        model = poptorch.inferenceModel(torch.nn.Dropout(0.5).train(), poptorch.Options().randomSeed(seed))
        return model(torch.ones(100)).tolist()

    assert values(1) == values(1) != values(2)


@pytest.mark.filterwarnings("default")
def test_deprecated_settings_are_named(tmp_path):
    options = poptorch.Options()
    for call in (
        lambda: options.enableProfiling(str(tmp_path)),
        lambda: options.Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior.Default),
        lambda: options.Precision.runningStatisticsAlwaysFloat(True),
        lambda: options.Jit.traceModel(False),
    ):
        with pytest.warns(UserWarning, match="no effect"):
            call()


def test_the_variables_of_processes_have_names(monkeypatch):
    monkeypatch.setenv("OWN_SIZE", "3")
    monkeypatch.setenv("OWN_RANK", "2")
    options = poptorch.Options()
    options.Distributed.setEnvVarNames("OWN_SIZE", "OWN_RANK")
    assert (options.Distributed.numProcesses, options.Distributed.processId) == (3, 2)


def test_an_ipu_model_has_any_number_of_ipus_and_no_replicas():
    def compiled(use_model, replicas=1):
        options = poptorch.Options().useIpuModel(use_model).replicationFactor(replicas)
        stages = poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(3 - replicas)
        options.setExecutionStrategy(poptorch.ShardedExecution(*stages))
        poptorch.inferenceModel(Model(), options).compile(torch.ones(4 * replicas, 8).half())

    compiled(True)
    with pytest.raises(poptorch.Error, match=r"specifies the use of 3 IPUs, .* must reserve a minimum of 4"):
        compiled(False)
    with pytest.raises(poptorch.Error, match=r"2 replicas.*IPU Model"):
        compiled(True, replicas=2)
    compiled(False, replicas=2)
