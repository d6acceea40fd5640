"""State and gradients that forward changes: as in eager PyTorch, or refused with the line of the program."""

import copy
import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402
import ipu_emu.torch  # noqa: E402

pytestmark = pytest.mark.torch

NAN, INF = float("nan"), float("inf")


class Weights(nn.Module):
    """A loss of weights alone."""

    def __init__(self, function, *weights):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(torch.tensor(weight)) for weight in weights])

    def forward(self, x):
        return self.function(*self.weights) + 0 * x.sum()


def check_training(function, *weights, optimiser=lambda p: torch.optim.SGD(p, 1.0), steps=1):
    module = Weights(function, *weights)
    eager = copy.deepcopy(module)
    data = (torch.zeros(steps, 1),)
    ipu_emu.torch.train(
        module, None, optimiser(module.parameters()), data, batch_size=1, shuffle=False, progress=False
    )
    reference = optimiser(eager.parameters())
    for _ in range(steps):
        reference.zero_grad()
        eager(torch.zeros(1)).backward()
        reference.step()
    for own, other in zip(module.weights, eager.weights, strict=True):
        torch.testing.assert_close(own.detach(), other.detach())


def without_gradient(s, t):
    with torch.no_grad():
        view = s[1:]
    return (s * t.detach()).sum() + (s[1:] * view).sum() + (s * t.data).sum() + 2 * t.sum()


def test_detached_parameters_data_and_views_without_a_gradient_get_none():
    check_training(without_gradient, [1.0, 2.0], [3.0, 4.0])


@pytest.mark.parametrize(
    "optimiser",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, maximize=True),
        lambda p: torch.optim.AdamW(p, 0.1, maximize=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.1, dampening=0.5),
    ],
)
def test_maximize_and_dampening_are_those_of_pytorch(optimiser):
    check_training(lambda w: (w**2).sum(), [1.0, -2.0], optimiser=optimiser, steps=3)


class Counting(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2, momentum=None)
        self.register_buffer("calls", torch.zeros((), dtype=dtype))

    def forward(self, x):
        self.calls += 1
        return self.norm(self.layer(x)) * (1.0 / self.calls)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_counters_and_cumulative_statistics_follow_every_call(dtype):
    torch.manual_seed(0)
    x, y = torch.randn(32, 3) + 2, torch.randn(32, 2)
    module = Counting(dtype)
    eager = copy.deepcopy(module)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    ipu_emu.torch.train(module, nn.MSELoss(), optimiser, (x, y), batch_size=8, shuffle=False, progress=False)
    eager_steps(eager, torch.optim.SGD(eager.parameters(), 0.1), x, y)
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


def eager_steps(module, optimiser, x, y):
    for start in range(0, len(x), 8):
        optimiser.zero_grad()
        F.mse_loss(module(x[start : start + 8]), y[start : start + 8]).backward()
        optimiser.step()


class Student(nn.Module):
    """A layer and a frozen teacher, whose weights follow those of the layer."""

    def __init__(self):
        super().__init__()
        self.layer, self.teacher = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for old, new in zip(self.teacher.parameters(), self.layer.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
        return self.layer(x) - 0.5 * self.teacher(x)


def test_a_frozen_teacher_that_follows_in_forward_is_that_of_pytorch():
    torch.manual_seed(0)
    x, y = torch.randn(32, 3) + 2, torch.randn(32, 2)
    module = Student()
    eager = copy.deepcopy(module)
    sgd = torch.optim.SGD(module.layer.parameters(), 0.1)
    ipu_emu.torch.train(module, nn.MSELoss(), sgd, (x, y), batch_size=8, shuffle=False, progress=False)
    eager_steps(eager, torch.optim.SGD(eager.layer.parameters(), 0.1), x, y)
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


class Own(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.layer, self.calls = function, nn.Linear(2, 2), 0

    def forward(self, x):
        return poptorch.identity_loss(self.function(self, self.layer(x)), "sum")


class Tenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * 10


def counted(module, x):
    module.calls += 1
    return x * module.calls


def hooked(module, x):
    x.register_hook(lambda g: g * 2)
    return x


@pytest.mark.parametrize(
    "function",
    [
        counted,
        hooked,
        lambda module, x: x * random.random(),
        lambda module, x: x if random.random() < 0.5 else x * 2,
        lambda module, x: x * float(np.random.rand()),
        lambda module, x: x * x.detach().flatten().tolist()[0],
        lambda module, x: Tenfold.apply(x),
        lambda module, x: x * torch.autograd.grad(x.sum(), module.layer.weight)[0].sum(),
    ],
)
def test_what_would_be_recorded_once_or_not_at_all_is_refused_with_its_line(function):
    module = Own(function)
    state = random.getstate()
    with pytest.raises(poptorch.Error, match=r"test_changing_state\.py:\d+"):
        poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), 0.1))(torch.ones(4, 2))
    random.setstate(state)


def kept_in_an_attribute(module, x):
    module.mean = getattr(module, "mean", torch.zeros(2)) * 0.5 + x.detach().mean(0)
    return x - module.mean


def computed_once(module, x):
    module.scale = module.layer.weight.sum() if not hasattr(module, "scale") else module.scale
    return x * module.scale


def other_memory(module, x):
    module.layer.weight.data = module.layer.weight.data.clamp(0)
    return x


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (kept_in_an_attribute, r"test_changing_state\.py:\d+\) uses a tensor that an earlier call"),
        (computed_once, r"test_changing_state\.py:\d+\) uses a tensor that an earlier call"),
        (other_memory, r"Parameter layer\.weight is reassigned"),
        (lambda module, x: torch.fft.rfft(x).abs(), r"test_changing_state\.py:\d+\) gives complex numbers"),
        (lambda module, x: torch.func.grad(lambda z: module.layer(z).sum())(x), r"torch\.func\.grad"),
    ],
)
def test_tensors_that_a_recording_cannot_follow_are_refused(function, text):
    with pytest.raises(poptorch.Error, match=text):
        poptorch.trainingModel(Own(function))(torch.ones(4, 2))


def of_complex_numbers():
    module = nn.Linear(2, 2)
    module.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
    return module


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.jit.script(nn.Linear(2, 2)), "is a torch.jit.ScriptModule"),
        (lambda: nn.LazyLinear(2), "weight of the module has no shape"),
        (of_complex_numbers, "phase of the module is complex"),
    ],
)
def test_modules_that_cannot_be_recorded_are_refused(make, text):
    with pytest.raises(poptorch.Error, match=text):
        poptorch.inferenceModel(make())


def unrecorded(w):
    y = w * 2
    with torch.no_grad():
        y.mul_(3)
        y[0] = 1.0
    y.data.clamp_(max=4.0)
    y.detach()[1] = 2.0
    return y.sin().sum()


def through_unsafe_views(w):
    part = w.view(2, 3)[:, :2]
    return (torch.kron(part, part) * torch.arange(16.0).view(4, 4)).sum() + (part * part).sum() + w.sum()


def written_out(w):
    result = torch.zeros(2, 6)
    torch.mul(w.detach(), 3.0, out=result[1])
    return (result.sum(0) * w).sum()


def turned(w):
    y = w.view(2, 3) * 1
    view = y[..., :2]
    y.t_()
    view.mul_(3)
    y[0].add_(1)
    return (view.sin().sum() + (y * torch.arange(6.0).view(3, 2)).sum()).cos()


@pytest.mark.parametrize("function", [unrecorded, through_unsafe_views, written_out, turned])
def test_changes_that_pytorch_does_not_record_and_unsafe_views_are_those_of_pytorch(function):
    check_training(function, [0.5, 1.0, -2.0, 0.1, 3.0, 0.3])


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.spectral_norm:FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_a_spectral_norm_iterates_as_in_pytorch(norm):
    torch.manual_seed(0)
    module, x, y = nn.Sequential(norm(nn.Linear(3, 2))), torch.randn(12, 3), torch.randn(12, 2)
    eager = copy.deepcopy(module)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    ipu_emu.torch.train(module, nn.MSELoss(), optimiser, (x, y), batch_size=4, shuffle=False, progress=False)
    optimiser = torch.optim.SGD(eager.parameters(), 0.1)
    for start in range(0, 12, 4):
        optimiser.zero_grad()
        F.mse_loss(eager(x[start : start + 4]), y[start : start + 4]).backward()
        optimiser.step()
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


@pytest.mark.parametrize("wrap", [poptorch.inferenceModel, poptorch.trainingModel])
def test_a_mode_that_changes_after_the_compilation_is_said_once(wrap):
    class Dropped(nn.Sequential):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x), "sum")

    module = Dropped(nn.Linear(2, 2), nn.Dropout(0.9)).eval()
    model = wrap(module)
    model(torch.ones(1, 2))
    module[1].train()
    with pytest.warns(UserWarning, match="The module 1 was compiled in evaluation mode and is in training"):
        model(torch.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda module: setattr(module, "calls", 7),
            "The attribute calls of the module was compiled as 0 and is 7 now",
        ),
        (lambda module: setattr(module.drop, "p", 0.1), "The attribute drop.p of the module was compiled as 0.5"),
        (
            lambda module: setattr(module, "scale", torch.ones(3)),
            r"scale of the module was compiled as a tensor \[2\]",
        ),
        (
            lambda module: module.layer.requires_grad_(False),
            "requires_grad of the parameter layer.bias was compiled as",
        ),
    ],
)
def test_attributes_that_change_after_the_compilation_are_said_once(change, text):
    module = Own(lambda module, x: module.drop(x) * module.calls * module.scale)
    module.drop, module.scale = nn.Dropout(0.5), torch.ones(2)
    model = poptorch.trainingModel(module)
    model(torch.ones(1, 2))
    module.calls = int("0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1, 2))
    change(module)
    with pytest.warns(UserWarning, match=text):
        model(torch.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1, 2))


@pytest.mark.parametrize("wrap", [poptorch.inferenceModel, poptorch.trainingModel])
def test_weights_that_change_on_the_host_alone_are_said(wrap):
    module = Own(lambda module, x: x)
    model = wrap(module)
    model(torch.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.layer.load_state_dict(
            {name: torch.zeros_like(tensor) for name, tensor in module.layer.state_dict().items()}
        )
        model.copyWeightsToDevice()
        assert model(torch.ones(1, 2)).sum() == 0
    with torch.no_grad():
        module.layer.bias.fill_(1.0)
    with pytest.warns(
        UserWarning, match=r"layer\.bias changed on the host, and copyWeightsToDevice\(\) was not called"
    ):
        model(torch.ones(1, 2))


def test_a_text_is_no_result():
    with pytest.raises(poptorch.Error, match="forward returns the text 'done'"):
        poptorch.inferenceModel(Texts())(torch.ones(1, 2))


class Texts(nn.Module):
    def forward(self, x):
        return x, "done"


def test_a_hook_on_a_parameter_is_refused_by_name():
    module = Own(lambda module, x: x)
    module.layer.weight.register_hook(lambda g: g * 0)
    with pytest.raises(poptorch.Error, match=r"the parameter layer\.weight"):
        poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), 0.1))(torch.ones(4, 2))


def test_an_argument_without_a_rule_is_refused_by_name():
    module = Own(lambda module, x: F.embedding(torch.tensor([0, 1]), x, scale_grad_by_freq=True))
    with pytest.raises(poptorch.Error, match="scale_grad_by_freq=True"):
        poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), 0.1))(torch.ones(4, 2))


@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_mean_over_targets_that_count_is_that_of_the_whole_batch(weight, replicas):
    torch.manual_seed(0)
    x, y = torch.randn(8, 5), torch.tensor([0, -100, -100, -100, 1, 2, 3, 0])
    loss = nn.CrossEntropyLoss(None if weight is None else torch.tensor(weight), label_smoothing=0.1)
    module = nn.Linear(5, 4)
    eager = copy.deepcopy(module)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    ipu_emu.torch.train(
        module,
        loss,
        optimiser,
        (x, y),
        batch_size=8,
        accumulation=2,
        replicas=replicas,
        shuffle=False,
        progress=False,
    )
    loss(eager(x), y).backward()
    torch.optim.SGD(eager.parameters(), 0.1).step()
    torch.testing.assert_close(module.weight.detach(), eager.weight.detach())


#: Ops at the edges of their values and arguments.
EDGES = {
    "argmin": (lambda x: (x.argmin(), torch.min(x, 0)[0]), [1.0, NAN, -2.0]),
    "argmax": (lambda x: (x.argmax(), torch.max(x, 0)[1]), [1.0, NAN, 3.0]),
    "median": (torch.median, [1.0, NAN, 3.0]),
    "median along": (lambda x: torch.median(x, 1), [[1.0, NAN, 3.0], [3.0, 1.0, 2.0]]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), [[-INF, -INF], [INF, 1.0], [1.0, 2.0]]),
    "logaddexp": (lambda x: torch.logaddexp(x, x), [-INF, INF, 1.0]),
    "variance": (lambda x: (x.var(-1), x.std(-1)), [[1.0], [2.0]]),
    "decimals": (lambda x: (x.round(decimals=1), (x * 100).round(decimals=-1)), [0.26, 1.34]),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([1.0, 3.0, 5.0])), [3.0, 0.0, 9.0, NAN]),
    "bucketize right": (lambda x: torch.bucketize(x, torch.tensor([1.0, 3.0]), right=True), [3.0, 0.0, 1.0]),
    "searchsorted": (
        lambda x: torch.searchsorted(torch.tensor([[1.0, 3.0], [2.0, 4.0]]), x),
        [[1.0, 3.0], [4.0, 0.0]],
    ),
    "all ignored": (lambda x: F.cross_entropy(x, torch.tensor([-100, -100])), [[1.0, 2.0], [0.0, 1.0]]),
    "transposed": (
        lambda x: F.conv_transpose2d(x, torch.ones(1, 1, 2, 2), None, 1, 3, 1, 1, 2),
        [[[[0.5] * 5] * 5]],
    ),
    **{
        f"scatter {how} {own}": (
            lambda x, how=how, own=own: x.scatter_reduce(
                0, torch.tensor([0, 1, 0]), torch.tensor([1.0, 2.0, 3.0]), how, include_self=own
            ),
            [9.0, 9.0, 9.0],
        )
        for how in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    },
    **{
        f"{mode} {scale}": (
            lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode),
            [[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]],
        )
        for mode in ("nearest", "nearest-exact", "linear")
        for scale in (0.7, 1.7, 3.5)
    },
}


class Edges(nn.Module):
    def forward(self, *inputs):
        return [as_list(function(x)) for (function, _), x in zip(EDGES.values(), inputs, strict=True)]


def as_list(result):
    return list(result) if isinstance(result, tuple) else [result]


def test_ops_at_their_edges_are_those_of_pytorch():
    inputs = [torch.tensor(x) for _, x in EDGES.values()]
    results = poptorch.inferenceModel(Edges(), poptorch.Options().useIpuModel(True))(*inputs)
    for name, own, other in zip(EDGES, results, Edges()(*inputs), strict=True):
        for a, b in zip(own, other, strict=True):
            torch.testing.assert_close(a, b.to(a.dtype), equal_nan=True, msg=name)
