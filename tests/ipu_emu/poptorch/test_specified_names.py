"""Specified names: each required name of PopTorch exists, has its effect, and refuses a wrong use."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.poptorch import optim, popdist_options  # noqa: E402
from tests.ipu_emu.helpers.poptorch_calls import Calls, inferred, mean_loss, training  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

nn = torch.nn
#: The names that programs use most, as programs write them: setters of Options first.
MUST = [
    "Options", "deviceIterations", "replicationFactor", "Training.gradientAccumulation", "outputMode",
    "enableExecutableCaching", "randomSeed", "autoRoundNumIPUs", "Precision.setPartialsType",
    "setExecutionStrategy", "setAvailableMemoryProportion", "Precision.enableStochasticRounding",
    "Training.accumulationAndReplicationReductionType", "TensorLocations", "_Popart", "clone",
    "Training.setAutomaticLossScaling", "enableSyntheticData", "trainingModel", "inferenceModel", "DataLoader",
    "DataLoaderMode", "BeginBlock", "Block", "PipelinedExecution", "ShardedExecution", "AutoStage", "Stage",
    "identity_loss", "optim.SGD", "optim.AdamW", "optim.Adam", "optim.LAMB", "optim.RMSprop", "compile",
    "setOptimizer", "detachFromDevice", "attachToDevice", "destroy", "state_dict", "load_state_dict", "train",
    "eval", "recomputationCheckpoint", "popdist.poptorch.Options", "setLogLevel", "Error", "isRunningOnIpu",
]  # fmt: skip

ROWS = {}


def row(*names):
    """Register the check of ``names``; if there are several, the check is called with each."""

    def register(check):
        ROWS.update(dict.fromkeys(names, check))
        return check

    return register


def trained(x, options=None, **parts):
    module, model = training(options=options, **parts)
    model(x)
    return module.w.detach().tolist()


ONE, FOUR = torch.ones(1), torch.arange(4.0)


def blocks(*ipus, options=None):
    """A step of a module with a block on each of these IPUs, in training."""
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in ipus), nn.Flatten(0))
    for number, ipu in enumerate(ipus):
        poptorch.BeginBlock(module[number], f"b{number}", ipu_id=ipu)
    network = nn.Sequential(module, Calls(lambda m, x: poptorch.identity_loss(x * m.w, "mean")))
    rate = torch.optim.SGD(network.parameters(), lr=0.01)
    steps = 1 if options is None else options.Training.gradient_accumulation
    poptorch.trainingModel(network, options, rate)(torch.ones(steps, 2))
    return [weight.tolist() for weight in network.state_dict().values() if weight.dim() == 2]


def accumulating(count, strategy=None):
    options = poptorch.Options()
    options.Training.gradientAccumulation(count)
    return options if strategy is None else options.setExecutionStrategy(strategy)


# Options


@row("Options")
def options_are_a_chain_and_frozen_by_a_model():
    options = poptorch.Options().deviceIterations(2).randomSeed(1)
    poptorch.inferenceModel(nn.ReLU(), options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(3)
    with pytest.raises(AttributeError, match="Invalid attribute noSuch"):
        _ = options.noSuch


@row("deviceIterations")
def iterations_multiply_the_batch():
    options = poptorch.Options().deviceIterations(4)
    assert inferred(lambda m, x: x + 1, FOUR, options=options).tolist() == [1, 2, 3, 4]
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        inferred(lambda m, x: x, torch.ones(3), options=options)


@row("replicationFactor")
def each_replica_has_a_loss():
    _, model = training(options=poptorch.Options().replicationFactor(2))
    assert model(FOUR[:2]).tolist() == [0, 1]
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        training(options=poptorch.Options().replicationFactor(2))[1](FOUR[:3])


@row("Training.gradientAccumulation")
def an_update_has_the_mean_of_all_micro_batches():
    assert trained(FOUR, accumulating(4)) == [1 - 0.5 * 1.5]
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1"):
        poptorch.inferenceModel(nn.ReLU(), accumulating(4))


@row("outputMode")
def modes_choose_the_micro_batches():
    modes = {"Final": [3], "All": [0, 1, 2, 3], "Sum": [6], "EveryN": [1, 3]}
    for name, expected in modes.items():
        options = poptorch.Options().deviceIterations(4)
        options.outputMode(poptorch.OutputMode[name], *([2] if name == "EveryN" else []))
        assert inferred(lambda m, x: x * 1, FOUR, options=options).tolist() == expected
    with pytest.raises(AssertionError):
        poptorch.Options().outputMode(poptorch.OutputMode.EveryN)


@row("enableExecutableCaching")
def an_executable_is_kept_in_the_folder(tmp_path):
    inferred(lambda m, x: x + 1, ONE, options=poptorch.Options().enableExecutableCaching(str(tmp_path / "kept")))
    assert [file.suffix for file in (tmp_path / "kept").glob("*.ipuexe")] == [".ipuexe"]
    with pytest.raises(AssertionError, match="Unexpected type"):
        poptorch.Options().enableExecutableCaching(7)


@row("randomSeed")
def a_seed_chooses_the_numbers_of_dropout():
    def drawn(seed):
        module = nn.Dropout(0.5)
        return poptorch.inferenceModel(module, poptorch.Options().randomSeed(seed))(torch.ones(1, 64)).tolist()

    assert drawn(1) == drawn(1) != drawn(2)
    with pytest.raises(AssertionError, match="Unexpected type"):
        poptorch.Options().randomSeed("1")


@row("autoRoundNumIPUs")
def three_ipus_need_four():
    strategy = poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)
    with pytest.raises(poptorch.Error, match="must reserve a minimum of 4"):
        blocks(0, 1, 2, options=poptorch.Options().setExecutionStrategy(strategy))
    rounded = poptorch.Options().setExecutionStrategy(strategy).autoRoundNumIPUs()
    with pytest.warns(UserWarning, match="minimum of 4"):
        assert blocks(0, 1, 2, options=rounded) == blocks(0, 0, 0)


@row("Precision.setPartialsType", "setAvailableMemoryProportion")
def memory_and_partials_change_no_number():
    options = poptorch.Options().setAvailableMemoryProportion({"IPU0": 0.1})
    options.Precision.setPartialsType(torch.half)
    torch.manual_seed(0)
    module, x = nn.Linear(64, 3), torch.randn(2, 64)
    assert torch.equal(poptorch.inferenceModel(module, options)(x), poptorch.inferenceModel(module)(x))
    with pytest.raises(AssertionError):
        poptorch.Options().setAvailableMemoryProportion({"0": 0.1})
    with pytest.raises(ValueError, match=r"float|half"):
        poptorch.Options().Precision.setPartialsType(torch.int8)


@row("setExecutionStrategy", "PipelinedExecution")
def a_pipeline_needs_micro_batches_and_changes_no_bit():
    same = poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu)
    assert blocks(0, 1, options=accumulating(4, same)) == blocks(0, 0, options=accumulating(4))
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(3\)"):
        blocks(0, 1, options=accumulating(2, same))
    with pytest.raises(AssertionError):
        poptorch.Options().setExecutionStrategy("pipelined")


@row("Precision.enableStochasticRounding")
def small_updates_of_halves_are_made_sometimes():
    def rounded(on):
        options = poptorch.Options()
        options.Precision.enableStochasticRounding(on)
        module, model = training(
            lambda m, x: poptorch.identity_loss(m.w * x, "sum"), options, dtype=torch.half, size=256
        )
        model.setOptimizer(torch.optim.SGD(module.parameters(), lr=1e-4))
        model(torch.ones(1, dtype=torch.half))
        return set(module.w.tolist())

    assert rounded(False) == {1.0}
    assert len(rounded(True)) == 2
    with pytest.raises(AssertionError):
        poptorch.Options().Precision.enableStochasticRounding(1)


@row("Training.accumulationAndReplicationReductionType")
def gradients_are_summed_or_averaged():
    options = accumulating(4)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    assert trained(FOUR, options) == [1 - 0.5 * 6]
    with pytest.raises(ValueError, match=r"Mean or ReductionType\.Sum"):
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)


@row("TensorLocations")
def locations_change_no_bit():
    options = poptorch.Options()
    away = poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(0)
    options.TensorLocations.setWeightLocation(away).setOptimizerLocation(away)
    assert trained(ONE, options) == trained(ONE)
    with pytest.raises(AssertionError, match="even number between 32 and 192"):
        options.TensorLocations.numIOTiles(31)


@row("_Popart")
def session_options_are_checked_when_a_model_is_compiled():
    options = poptorch.Options()
    options._Popart.set("autoRecomputation", 1).set(
        "replicatedCollectivesSettings.prepareScheduleForMergingCollectives", True
    )
    assert trained(ONE, options) == trained(ONE)
    unknown = poptorch.Options()
    unknown._Popart.set("noSuch", True)
    with pytest.raises(poptorch.Error, match="Unknown bool option noSuch"):
        trained(ONE, unknown)


@row("clone")
def a_clone_is_unfrozen_and_apart():
    options = poptorch.Options()
    poptorch.inferenceModel(torch.nn.Linear(1, 1), options)
    other = options.clone().deviceIterations(3)
    assert (options.device_iterations, other.device_iterations) == (1, 3)


@row("Training.setAutomaticLossScaling")
def the_loss_scaling_has_a_state():
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    module = Calls(mean_loss, dtype=torch.half)
    optimizer = optim.SGD(module.parameters(), lr=0.5)
    poptorch.trainingModel(module, options, optimizer)(torch.ones(1, dtype=torch.half))
    assert any("lossScaleUpdateFactor" in name for name in optimizer.state_dict()["ipu_state"])
    with pytest.raises(AssertionError):
        options.clone().Training.setAutomaticLossScaling("on")


@row("enableSyntheticData")
def synthetic_data_keep_the_shapes():
    output = inferred(lambda m, x: x * 2, torch.ones(2, 3), options=poptorch.Options().enableSyntheticData(True))
    assert output.shape == (2, 3)
    with pytest.raises(AssertionError):
        poptorch.Options().enableSyntheticData(1)


# Models


@row("trainingModel")
def a_module_is_wrapped_once():
    module, model = training()
    assert type(module).__name__ == "PoptorchCalls"
    model(ONE)
    assert module.w.item() == 0.5
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(module)


@row("inferenceModel")
def inference_returns_what_forward_returns():
    model = poptorch.inferenceModel(nn.Bilinear(1, 1, 1))
    with pytest.raises(poptorch.Error, match="Mandatory parameter input2 missing"):
        model(torch.ones(1, 1))
    assert inferred(lambda m, x, y: {"sum": x + y, "none": None}, ONE, 2 * ONE) == {"sum": 3 * ONE, "none": None}


@row("DataLoader")
def batches_are_combined():
    data = torch.utils.data.TensorDataset(torch.arange(50))
    options = accumulating(5).deviceIterations(2)
    loader = poptorch.DataLoader(options, data, batch_size=2)
    assert (loader.combinedBatchSize, len(loader), [len(batch[0]) for batch in loader]) == (20, 2, [20, 20])
    apart = poptorch.Options()
    apart.Distributed.configureProcessId(0, 2)
    with pytest.raises(AssertionError, match="randomSeed"):
        poptorch.DataLoader(apart, data, shuffle=True)


@row("DataLoaderMode")
def modes_give_the_same_data():
    data = torch.utils.data.TensorDataset(torch.arange(12))
    async_loader = poptorch.DataLoader(poptorch.Options(), data, 4, mode=poptorch.DataLoaderMode.Async)
    assert [batch[0].tolist() for batch in async_loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(poptorch.Error, match="already uses an AsynchronousDataAccessor"):
        poptorch.AsynchronousDataAccessor(async_loader)
    async_loader.terminate()


# Blocks and stages


@row("BeginBlock")
def a_module_begins_one_block():
    module = poptorch.BeginBlock(nn.Linear(1, 1), "a", ipu_id=1)
    with pytest.raises(poptorch.Error, match="already been assigned to a block"):
        poptorch.BeginBlock(module)


@row("Block")
def a_block_ends():
    def forward(module, x):
        with poptorch.Block("a", ipu_id=0):
            x = x + 1
        return x * 2

    with pytest.raises(poptorch.Error, match="No active Block"):
        inferred(forward, ONE)


@row("ShardedExecution", "AutoStage")
def shards_change_no_bit():
    for auto in poptorch.AutoStage:
        sharded = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution(auto))
        assert blocks(0, 1, options=sharded) == blocks(0, 0)
    with pytest.raises(AssertionError, match="Expected stages"):
        poptorch.ShardedExecution(3)


@row("Stage")
def stages_name_their_blocks():
    two = poptorch.PipelinedExecution(poptorch.Stage("b0").ipu(0), poptorch.Stage("b1").ipu(1))
    assert blocks(0, 0, options=accumulating(4, two)) == blocks(0, 0, options=accumulating(4))
    with pytest.raises(AssertionError, match=r"Unknown Block 'b1' list of expected Blocks: \['b0'\]"):
        blocks(0, 0, options=accumulating(4, poptorch.PipelinedExecution(poptorch.Stage("b0"))))
    with pytest.raises(AssertionError, match="associated with more than one stage"):
        poptorch.PipelinedExecution("b0", poptorch.Stage("b0"))


@row("identity_loss")
def the_reduction_gives_the_gradient():
    for reduction, expected in (("none", 1 - 0.5 * 6), ("sum", 1 - 0.5 * 6), ("mean", 1 - 0.5 * 1.5)):
        module, model = training(lambda m, x, kind=reduction: poptorch.identity_loss(x * m.w, kind))
        output = model(FOUR)
        assert (module.w.item(), output.shape) == (expected, (4,) if reduction == "none" else ())
    with pytest.raises(AssertionError, match="Unsupported reduction type!"):
        poptorch.identity_loss(ONE, "max")


# Optimisers


@row("optim.SGD", "optim.Adam", "optim.AdamW", "optim.RMSprop", "optim.LAMB")
def updates_equal_those_of_the_host(name):
    kind = getattr(optim, name.split(".")[1])
    module = Calls(mean_loss, size=4)
    host = copy.deepcopy(module)
    model = poptorch.trainingModel(module, None, kind(module.parameters(), lr=0.1))
    twin = kind(host.parameters(), lr=0.1)
    for _ in range(3):
        model(FOUR + 1)
        twin.zero_grad()
        host(FOUR + 1).backward()
        (kind if name == "optim.LAMB" else getattr(torch.optim, name.split(".")[1])).step(twin)
    torch.testing.assert_close(module.w, host.w, rtol=1e-5, atol=1e-6)
    wrong = "accum_type" if name != "optim.SGD" else "velocity_accum_type"
    with pytest.raises(AssertionError, match=r"torch\.float32 or torch\.float16"):
        kind(host.parameters(), lr=0.1, **{wrong: torch.int8})


# Executors


@row("compile")
def a_model_is_compiled_once_without_a_step():
    module, model = training()
    model.compile(ONE)
    assert model.isCompiled()
    assert module.w.item() == 1
    with pytest.warns(UserWarning, match="already compiled"):
        model.compile(ONE)
    with pytest.raises(poptorch.Error, match="Zero-sized tensors"):
        training()[1].compile(torch.ones(0))


@row("setOptimizer")
def a_new_rate_is_used_from_the_next_step_on():
    module, model = training()
    model(ONE)
    model.setOptimizer(torch.optim.SGD(module.parameters(), lr=0.25))
    model(ONE)
    assert module.w.item() == 0.25
    with pytest.raises(ValueError, match="executable is already compiled"):
        model.setOptimizer(torch.optim.Adam(module.parameters()))


@row("detachFromDevice", "attachToDevice")
def weights_survive_without_a_device():
    module, model = training()
    with pytest.raises(poptorch.Error, match="compiled"):
        model.detachFromDevice()
    model(ONE)
    with pytest.raises(poptorch.Error, match="already attached"):
        model.attachToDevice()
    model.detachFromDevice()
    assert (model.isAttachedToDevice(), module.w.item()) == (False, 0.5)
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        model.detachFromDevice()
    model.attachToDevice()
    model(ONE)
    assert module.w.item() == 0


@row("destroy")
def a_destroyed_model_is_the_users_again():
    module, model = training()
    model(ONE)
    model.destroy()
    assert (type(module), module.w.item()) == (Calls, 0.5)
    with pytest.raises(poptorch.Error, match="has not been compiled or has been destroyed"):
        model.copyWeightsToHost()
    assert poptorch.trainingModel(module, None, torch.optim.SGD(module.parameters(), lr=0.5))(FOUR).shape == ()


@row("state_dict", "load_state_dict")
def states_are_read_from_and_written_to_the_device():
    module, model = training()
    model(ONE)
    state = model.state_dict()
    assert (type(state["w"]), state["w"].item()) == (torch.Tensor, 0.5)
    model.load_state_dict({"w": torch.tensor([8.0])})
    model(ONE)
    assert module.w.item() == 7.5
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})


@row("train", "eval")
def children_follow_the_mode_at_the_first_call(name):
    module = nn.Sequential(nn.Dropout(0.5))
    model = poptorch.inferenceModel(module)
    getattr(model, name)()
    assert (0 in model(torch.ones(1, 64))) is (name == "train")


# Functions


@row("recomputationCheckpoint")
def checkpoints_return_what_they_are_given():
    assert poptorch.recomputationCheckpoint(ONE) is ONE
    assert isinstance(poptorch.recomputationCheckpoint([ONE, ONE]), list)
    module, model = training(lambda m, x: mean_loss(m, *poptorch.recomputationCheckpoint(x, x)[:1]))
    model(ONE)
    assert module.w.item() == 0.5
    with pytest.raises(ValueError, match="All inputs must be tensors"):
        poptorch.recomputationCheckpoint(ONE, 3)


@row("popdist.poptorch.Options")
def options_of_a_job_have_its_replicas():
    options = popdist_options.Options()
    assert options.replication_factor == 1
    with pytest.raises(RuntimeError, match="Cannot call `replicationFactor` with popdist"):
        options.replicationFactor(2)
    with pytest.raises(RuntimeError, match=r"Cannot call `Distributed\.disable`"):
        options.Distributed.disable()


@row("setLogLevel")
def levels_are_names_or_numbers(monkeypatch):
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF", 0, 1, 2, 3, 4, 6):
        poptorch.setLogLevel(level)
    poptorch.setLogLevel("WARN")
    with pytest.raises(ValueError, match="Invalid log level integer"):
        poptorch.setLogLevel(5)
    with pytest.raises(ValueError, match=r"Unknown log level: LOUD\. Valid values are DEBUG"):
        poptorch.setLogLevel("LOUD")


@row("Error")
def errors_say_what_and_where():
    with pytest.raises(poptorch.Error) as caught:
        inferred(lambda m, x: x.item(), ONE)
    error = caught.value
    assert "aten::item is only supported in eager mode" in error.message
    assert all(isinstance(attribute, str) for attribute in (error.message, error.type, error.location))
    assert issubclass(poptorch.RecoverableError, poptorch.Error)


@row("isRunningOnIpu")
def only_a_trace_runs_on_ipus():
    assert inferred(lambda m, x: x + 1 if poptorch.isRunningOnIpu() else x, ONE) == 2
    assert not poptorch.isRunningOnIpu()


def test_every_name_has_a_row():
    assert set(ROWS) == set(MUST)


@pytest.mark.parametrize("name", MUST)
def test_a_name_has_its_effect_and_refuses_invalid_arguments(name, request):
    check = ROWS[name]
    wanted = check.__code__.co_varnames[: check.__code__.co_argcount]
    arguments = {argument: name if argument == "name" else request.getfixturevalue(argument) for argument in wanted}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(**arguments)
