"""Executors: weights between host and device, optimiser states, files, buffers, inputs, functions in forward."""

import os
import pickle

import pytest

from tests.helpers.address_space import at_most

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, target=None):
        self.count += 1
        y = self.fc(x)
        return (y, self.count) if target is None else (y, F.mse_loss(y, target))


X = torch.linspace(-1, 1, 8).view(2, 4)


def test_a_buffer_counts_on_the_device():
    model = poptorch.inferenceModel(Model())
    assert [model(X)[1].item() for _ in range(3)] == [1, 2, 3]


def test_weights_come_to_the_host_when_they_are_read():
    module = Model()
    before = module.fc.weight.detach().clone()
    model = poptorch.trainingModel(module)
    model(X, X)
    assert model.copyWeightsToHostIfNeeded() is True
    assert model.copyWeightsToHostIfNeeded() is False
    model(X, X)
    model.copyWeightsToDevice()  # overwrites the trained weights, which nothing has read
    first = module.fc.weight.detach().clone()
    assert not torch.equal(first, before)
    assert module.count.item() == 1
    assert type(pickle.loads(pickle.dumps(module))) is Model
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(module)
    model.destroy()
    assert type(module) is Model


def test_inference_after_training_uses_the_trained_weights():
    module = Model()
    model = poptorch.trainingModel(module)
    inference = poptorch.inferenceModel(module)
    for _ in range(2):
        model(X, X)
        y, _ = inference(X)
        torch.testing.assert_close(y, F.linear(X, module.fc.weight.detach(), module.fc.bias.detach()))


def test_a_saved_executor_continues_with_the_same_bits(tmp_path):
    torch.manual_seed(0)
    module = Model()
    model = poptorch.trainingModel(module, optimizer=poptorch.optim.Adam(module.parameters(), lr=0.01))
    model(X, X)
    before = os.umask(0)
    model.save(str(tmp_path))  # a file that others could change would be refused
    os.umask(before)
    loaded = poptorch.load(str(tmp_path))
    for _ in range(2):
        mine, other = model(X, X)[1], loaded(X, X)[1]
        assert torch.equal(mine, other)
    with pytest.raises(poptorch.Error, match="Invalid file"):
        poptorch.load(__file__)
    (tmp_path / "latest").symlink_to(tmp_path / next(path.name for path in tmp_path.iterdir()))
    again, linked = (poptorch.load(str(path))(X, X)[1] for path in (tmp_path, tmp_path / "latest"))
    assert torch.equal(again, linked)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "latest").rename(shared / "latest")
    with pytest.raises(poptorch.Error, match="copy it to a private folder"):
        poptorch.load(str(shared / "latest"))
    tmp_path.chmod(0o777)
    with pytest.raises(poptorch.Error, match="copy it to a private folder"):
        poptorch.load(str(tmp_path))


def test_a_damaged_file_is_refused_before_its_pickle_is_read(tmp_path):
    model = poptorch.inferenceModel(nn.Linear(2, 2))
    model(torch.ones(1, 2))
    path = tmp_path / "model.poptorch"
    model.save(str(path))
    pickled = path.read_bytes()
    damaged = [pickled[:end] for end in (0, 8, 40, len(pickled) - 1)]
    damaged += [
        pickled[:place] + bytes([pickled[place] ^ 4]) + pickled[place + 1 :] for place in range(0, len(pickled), 199)
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(poptorch.Error, match=r"Invalid file .*model\.poptorch: .*it is damaged, or not"):
            poptorch.load(str(path))
    path.write_bytes(pickled)
    with path.open("r+b") as file:
        file.truncate(12 << 30)  # its zeros take no disk space, but would take memory
    with at_most(1 << 30), pytest.raises(poptorch.Error, match="damaged"):
        poptorch.load(str(path))


def test_a_file_that_others_may_have_written_is_not_loaded(tmp_path):
    model = poptorch.inferenceModel(nn.Linear(2, 2))
    model(torch.ones(1, 2))
    path = tmp_path / "model.poptorch"
    model.save(str(path))
    path.chmod(0o666)
    with pytest.raises(poptorch.Error, match=r"other users may write to .*model\.poptorch \(mode 666\)"):
        poptorch.load(str(path))
    path.chmod(0o600)
    poptorch.load(str(path))
    if os.geteuid() == 0:  # other users may not change the owner of files
        os.chown(path, 65534, -1)
        with pytest.raises(poptorch.Error, match=r"model\.poptorch belongs to user 65534, not to this user"):
            poptorch.load(str(path))


class Count(nn.Module):
    def forward(self, x):
        return x + 1


class Far(nn.Module):
    def forward(self, x):
        return x + 2**33


@pytest.mark.parametrize(("module", "x"), [(Count(), 2**40), (Far(), 7)], ids=["input", "constant"])
def test_integers_beyond_32_bits_cause_a_warning(module, x):
    with pytest.warns(UserWarning, match="int64 values beyond the range of int32 have lost their upper bits"):
        output = poptorch.inferenceModel(module)(torch.tensor([x]))
    assert output.tolist() == [1 if x == 2**40 else 7]


def test_optimiser_state_and_values():
    module = Model()
    optimiser = poptorch.optim.SGD(module.parameters(), lr=0.05, weight_decay=0.025, loss_scaling=0.75)
    assert optimiser.state_dict()["ipu_state"] is None
    poptorch.trainingModel(module, optimizer=optimiser)(X, X)
    values = optimiser.state_dict()["ipu_param"]
    assert values["scaledLearningRate0___specific___fc.weight"].item() == pytest.approx(0.0666667)
    assert values["weightDecayScaleFactor0___specific___fc.weight"].item() == pytest.approx(0.99875)
    assert values["lossScaling_FLOAT"].item() == 0.75
    with pytest.raises(RuntimeError, match="Only IPU optimizer states"):
        optimiser.load_state_dict({"state": {}, "param_groups": []})


def test_a_constant_learning_rate_cannot_change():
    module = Model()
    optimiser = poptorch.optim.Adam(module.parameters())
    model = poptorch.trainingModel(module, optimizer=optimiser)
    model(X, X)
    optimiser.param_groups[0]["lr"] = 0.5
    with pytest.raises(poptorch.Error, match="learningRate is constant"):
        model.setOptimizer(optimiser)
    with pytest.raises(poptorch.Error, match="trainingModel"):
        poptorch.inferenceModel(Model()).setOptimizer(optimiser)


def test_changes_of_inputs_reach_the_caller():
    class Adds(nn.Module):
        def forward(self, x, y):
            x += y
            x += 2
            x += y

    first, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert poptorch.inferenceModel(Adds())(first, two) is None
    assert first.item() == 7


def test_replicas_keep_their_own_buffers_if_they_are_not_broadcast():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(1))

        def forward(self, x):
            self.total += x
            return self.total * 1

    options = poptorch.Options().replicationFactor(2)
    with pytest.raises(poptorch.Error, match="does not support broadcasting buffers"):
        poptorch.inferenceModel(Sums(), options)(torch.tensor([9.0, 2.0]))
    model = poptorch.inferenceModel(Sums(), options.clone().broadcastBuffers(False))
    for _ in range(50):
        output = model(torch.tensor([9.0, 2.0]))
    assert output.tolist() == [450, 100]


def test_tensors_are_printed_with_their_gradients(capfd):
    class Prints(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return poptorch.identity_loss(poptorch.ipu_print_tensor(self.fc(x), "hello"), "sum")

    poptorch.trainingModel(Prints())(torch.ones(1, 2))
    assert "hello: " in (text := capfd.readouterr().err)
    assert "1.000, 1.000" in text


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((), poptorch.Error, "Mandatory parameter x missing"),
        ((X, X, X), AssertionError, "Too many arguments"),
        ((X[:1], X), poptorch.Error, "Shape mismatch for x: expected"),
        ((X.int(), X), poptorch.Error, "Data type mismatch for x: expected torch.float32 but got torch.int32"),
    ],
)
def test_calls_that_do_not_fit_the_first_are_refused(args, error, message):
    model = poptorch.trainingModel(Model())
    model.compile(X, X)
    with pytest.raises(error, match=message):
        model(*args)


def test_options_are_frozen_by_the_first_wrapper():
    options = poptorch.Options()
    poptorch.inferenceModel(Model(), options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)
    assert options.clone().deviceIterations(2).device_iterations == 2


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (abs, None, "takes a torch.nn.Module, and got a builtin_function_or_method"),
        (nn.ReLU, None, "takes a torch.nn.Module, and got the class ReLU"),
        (nn.ReLU(), "fast", r"takes poptorch.Options\(\), and got a str as its options"),
    ],
)
def test_anything_but_a_module_or_options_is_refused(model, options, text):
    with pytest.raises(TypeError, match=f"poptorch.inferenceModel {text}"):
        poptorch.inferenceModel(model, options)
