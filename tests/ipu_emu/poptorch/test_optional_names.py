"""Optional names: names of PopTorch that some programs use have their effect, and refuse a wrong use."""

import io
from contextlib import redirect_stderr

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from popdist_py.environment import Environment  # noqa: E402
from popdist_py.layout import Layout  # noqa: E402
from tests.ipu_emu.helpers.poptorch_calls import Calls, inferred, mean_loss, training  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

nn = torch.nn
ONE, FOUR = torch.ones(1), torch.arange(4.0)


def test_tensors_are_anchored_by_the_names_that_are_listed():
    _, model = training(lambda m, x: (mean_loss(m, x.relu()), x))
    with pytest.raises(AssertionError, match="compiled"):
        model.getTensorNames()
    model.compile(FOUR)
    relu = next(name for name in model.getTensorNames() if "Relu" in name)
    assert any(name.startswith("Gradient___w") for name in model.getTensorNames())
    assert any(name.startswith("UpdatedVar___w") for name in model.getTensorNames())
    options = poptorch.Options()
    options.anchorTensor("mine", relu)
    options.anchorTensor("slope", "Gradient___w", poptorch.OutputMode.All)
    options.outputMode(poptorch.OutputMode.Final)
    _, model = training(lambda m, x: (mean_loss(m, x.relu()), x), options)
    model(FOUR - 2)
    assert model.getAnchoredTensor("mine").tolist() == [0, 0, 0, 1]
    assert model.getAnchoredTensor("slope").tolist() == [0.25]
    with pytest.raises(AssertionError, match="No tensor with name other found"):
        model.getAnchoredTensor("other")


def test_an_offline_target_only_compiles(tmp_path):
    _, model = training(options=poptorch.Options().useOfflineIpuTarget())
    model.compileAndExport(str(tmp_path / "a/b/m.poptorch"), FOUR)
    with pytest.raises(AssertionError, match=r"offline device \(ConnectionType.Never\)"):
        model(FOUR)
    loaded = poptorch.load(str(tmp_path / "a/b/m.poptorch"), lambda options: options.modelName("later"))
    assert (loaded(FOUR).item(), loaded.options.model_name) == (1.5, "later")


def test_programs_are_saved_and_loaded(tmp_path):
    _, model = training()
    model(FOUR)
    model.save(str(tmp_path), export_model=False)
    file = str(tmp_path / "model.poptorch")
    with pytest.raises(AssertionError, match="export_model=False"):
        poptorch.load(file)
    module, other = training()
    other.loadExecutable(file)
    other(FOUR)
    assert module.w.item() == 0.25
    (tmp_path / "wrong").write_text("no")
    with pytest.raises(poptorch.Error, match="Invalid file"):
        training()[1].loadExecutable(str(tmp_path / "wrong"))


def test_weights_are_copied_on_request():
    module, model = training()
    for copy in (model.copyWeightsToHost, model.copyWeightsToDevice):
        with pytest.raises(poptorch.Error, match="has not been compiled"):
            copy()
    model(ONE)
    model.copyWeightsToHost()
    assert not model.copyWeightsToHostIfNeeded()
    with torch.no_grad():
        module.w.fill_(8)
    model.copyWeightsToDevice()
    model(ONE)
    assert module.w.item() == 7.5


def test_hints_change_no_number():
    mode = poptorch.MatMulSerializationMode.OutputChannels
    x, y = torch.randn(4, 6), torch.randn(6, 8)
    assert torch.equal(
        inferred(lambda m, a: poptorch.nop(poptorch.serializedMatMul(a, y, mode, 2)), x),
        inferred(lambda m, a: torch.matmul(a, y), x),
    )
    with pytest.raises(AssertionError):
        poptorch.serializedMatMul(x, y, "output_channels", 2)

    def attributed(module, a):
        with poptorch.Attribute(__outline={"layer": "a"}), poptorch.NameScope("scope"):
            return a + 1

    model = poptorch.inferenceModel(Calls(attributed))
    assert model(ONE).item() == 2
    assert any(name.startswith("scope/") for name in model.getTensorNames())


def test_ops_of_poptorch_are_called_or_refused_by_name():
    def scoped(module, a):
        torch.ops.poptorch.push_name_scope("outer")
        torch.ops.poptorch.push_name_scope("inner")
        a = torch.ops.poptorch.nop(a + 1)
        torch.ops.poptorch.pop_name_scope()
        torch.ops.poptorch.pop_name_scope()
        return a * 3

    model = poptorch.inferenceModel(Calls(scoped))
    assert model(ONE).item() == 6
    assert any(name.startswith("outer/inner/Add") for name in model.getTensorNames())
    assert any(name.startswith("Mul") for name in model.getTensorNames())
    with pytest.raises(poptorch.Error, match="no push_name_scope began"):
        inferred(lambda m, a: torch.ops.poptorch.pop_name_scope(), ONE)
    with pytest.raises(AttributeError, match=r"torch\.ops\.poptorch\.begin_ipu_block is internal to PopTorch"):
        inferred(lambda m, a: torch.ops.poptorch.begin_ipu_block(0, 0, 0), ONE)


def test_latencies_are_least_most_and_mean():
    _, model = training()
    assert model.getPerfCounters()["input"] == [[]]
    for _ in range(3):
        model(ONE)
    for get in (model.getLatency, model.getHostIpuLatency, model.getComputeLatency, model.getIpuHostLatency):
        least, most, mean = get()
        assert 0 <= least <= mean <= most < 60
    assert model.getLatency()[0] > 0


def test_invalid_numbers_are_errors_on_request():
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(poptorch.Error, match="Floating point exception in Op Div"):
        inferred(lambda m, x: x / (x - x), ONE, options=options)
    assert inferred(lambda m, x: x / (x - x), ONE).isinf().all()


def test_processes_are_configured(monkeypatch):
    options = poptorch.Options()
    options.Distributed.configureProcessId(1, 2)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 2)
    options.Distributed.disable()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (3, 4)
    for name, value in Environment.of_instance(Layout((1, 1)), 1).to_environ().items():
        monkeypatch.setenv(name, value)
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (1, 2)


def test_blocks_are_removed_and_functions_are_blocks():
    module = nn.Sequential(poptorch.BeginBlock(nn.Linear(1, 1), "a", ipu_id=1))
    poptorch.removeBlocks(module)
    poptorch.BeginBlock(module[0], "a")

    @poptorch.BlockFunction("f", ipu_id=0)
    def inside(x):
        return x + 1

    assert inferred(lambda m, x: inside(x), ONE).item() == 2
    assert inside(ONE).item() == 2
    with pytest.raises(poptorch.Error, match="already been assigned to a block"):
        poptorch.BeginBlock(module[0], "b")


def test_means_are_computed_at_once_or_at_the_end():
    weights = []
    for strategy in (poptorch.MeanReductionStrategy.Running, poptorch.MeanReductionStrategy.Post):
        options = poptorch.Options()
        options.Training.gradientAccumulation(4).setMeanAccumulationAndReplicationReductionStrategy(strategy)
        module, model = training(options=options)
        model(FOUR)
        weights.append(module.w.item())
    assert weights == pytest.approx([0.25, 0.25], abs=1e-6)


def test_convolutions_are_planned_together():
    conv = nn.Conv2d(1, 1, 1)

    def planned(module, x):
        with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Parallel).cycleBackOff(0.2):
            return conv(x) + conv(x)

    def empty(module, x):
        with poptorch.MultiConv():
            return x + 1

    def nested(module, x):
        with poptorch.MultiConv(), poptorch.MultiConv():
            return conv(x)

    x = torch.ones(1, 1, 2, 2)
    torch.testing.assert_close(inferred(planned, x), (2 * conv(x)).detach())
    for wrong, text in ((empty, "Unexpected end_multi_conv"), (nested, "Nested poptorch.MultiConv")):
        with pytest.raises(poptorch.Error, match=text):
            inferred(wrong, x)


def test_overlap_needs_io_tiles_and_known_modes():
    mode = poptorch.OverlapMode.OverlapAccumulationLoop

    def overlapped(module, x):
        return poptorch.set_overlap_for_output(poptorch.set_overlap_for_input(x, mode) + 1, mode)

    with pytest.raises(poptorch.Error, match="No IO tiles allocated"):
        inferred(overlapped, ONE)
    options = poptorch.Options().deviceIterations(4)
    options.TensorLocations.numIOTiles(32)
    assert inferred(overlapped, FOUR, options=options).tolist() == [1, 2, 3, 4]
    away = options.clone().setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))

    def pipelined(module, x):
        with poptorch.Block("a", ipu_id=0):
            x = overlapped(module, x)
        with poptorch.Block("b", ipu_id=1):
            return x * 2

    with pytest.raises(poptorch.Error, match=r"not supported with poptorch\.PipelinedExecution"):
        inferred(pipelined, FOUR, options=away)
    final = options.clone().outputMode(poptorch.OutputMode.Final)
    with pytest.raises(poptorch.Error, match="Unsupported output mode for overlapped IO"):
        inferred(overlapped, FOUR, options=final)


def test_loops_and_conditions_are_for_inference():
    def loop(module, x):
        return poptorch.for_loop(5, lambda y: [y * 2], [x])[0]

    def chosen(module, x):
        return poptorch.cond(x.sum() > 3, lambda y: [y + 1], [x], lambda y: [y - 1], [x])[0]

    assert inferred(loop, ONE).item() == 32
    assert [inferred(chosen, value * ONE).item() for value in (4, 2)] == [5, 1]
    for body, text in ((loop, r"for_loop\(\) is only"), (chosen, r"cond\(\) is only")):
        with pytest.raises(poptorch.Error, match=text):
            training(lambda m, x, body=body: mean_loss(m, body(m, x)))[1](ONE)
    with pytest.raises(ValueError, match="Object is not list"):
        poptorch.for_loop(1, lambda y: [y], ONE)
    with pytest.raises(ValueError, match=r"list at index 0 is not torch\.tensor"):
        poptorch.for_loop(1, lambda y: [y], [3])


def test_slices_start_at_the_value_of_a_tensor():
    start = torch.tensor([2])
    assert inferred(lambda m, x, s: poptorch.dynamic_slice(x, 0, s, 2, 1), FOUR, start).tolist() == [2, 3]
    updated = inferred(lambda m, x, s: poptorch.dynamic_update(x, -torch.ones(2), 0, s, 2), FOUR, start)
    assert updated.tolist() == [0, 1, -1, -1]


def test_the_random_state_repeats_what_was_drawn():
    model = poptorch.inferenceModel(nn.Dropout(0.5), poptorch.Options().randomSeed(1))
    x = torch.ones(1, 64)
    model(x)
    state = model.rng_state
    first = model(x)
    model.rng_state = state
    assert isinstance(state, list)
    assert torch.equal(model(x), first)


def test_options_are_read_from_texts_and_files(tmp_path):
    text = '{"deviceIterations": 3, "Training.gradientAccumulation": 2, "connectionType": "ConnectionType.OnDemand"}'
    options = poptorch.Options().from_json(text)
    assert (options.device_iterations, options.Training.gradient_accumulation) == (3, 2)
    assert options.connection_type is poptorch.ConnectionType.OnDemand
    (tmp_path / "good").write_text("# comment\n\ndeviceIterations(4)\nTraining.gradientAccumulation(5)\n")
    options.loadFromFile(str(tmp_path / "good"))
    assert (options.device_iterations, options.Training.gradient_accumulation) == (4, 5)
    (tmp_path / "bad").write_text("deviceIterations(4\n")
    with pytest.raises(poptorch.ConfigFileError):
        options.loadFromFile(str(tmp_path / "bad"))


def test_a_tensor_and_its_gradient_are_printed():
    _, model = training(lambda m, x: mean_loss(m, poptorch.ipu_print_tensor(x * m.w, "seen")))
    with redirect_stderr(io.StringIO()) as printed:
        model(FOUR)
    assert "seen: " in printed.getvalue()
    assert "seen_gradient: " in printed.getvalue()


def test_hooks_are_called_around_a_compilation():
    calls = []
    handles = [
        poptorch.registerPreCompileHook(lambda: calls.append("before")),
        poptorch.registerPostCompileHook(lambda: calls.append("after")),
    ]
    inferred(lambda m, x: x + 1, ONE)
    for handle in handles:
        handle.remove()
    inferred(lambda m, x: x + 1, ONE)
    assert calls == ["before", "after"]
    with pytest.raises(RuntimeError, match="Pre-compile hook must be callable"):
        poptorch.registerPreCompileHook(3)


@pytest.mark.parametrize(
    "refused",
    [lambda x: poptorch.custom_op([x], "Cube", "custom.ops", 1, [x]), poptorch.CPU(lambda y: y, "mine")],
)
def test_impossible_options_are_refused_by_name(refused):
    with pytest.raises(poptorch.Error, match=r"custom\.ops\.Cube|CPU\('mine'\)"):
        inferred(lambda m, x: refused(x), ONE)
