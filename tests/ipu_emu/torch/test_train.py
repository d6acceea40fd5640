"""ipu_emu.torch.train: a module is trained in one call, as an eager loop trains it."""

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

import ipu_emu.torch  # noqa: E402
from ipu_emu import poptorch  # noqa: E402
from ipu_emu.torch.batches import Spread, batches_of  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS, ROOT  # noqa: E402
from tests.helpers.warm_processes import PYTORCH_FACES, warm_python  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = torch.Generator().manual_seed(0)
X, Y = torch.randn(48, 6, generator=SOURCE), torch.randint(0, 3, (48,), generator=SOURCE)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(data=(X, Y), loss=F.cross_entropy, **more):
    module = network()
    more = {"batch_size": 16, "shuffle": False, "progress": False} | more
    optimiser = torch.optim.SGD(module.parameters(), 0.2, momentum=0.9)
    assert ipu_emu.torch.train(module, loss, optimiser, data, **more) is module
    return module.state_dict()


def same(weights, other):
    return all(torch.equal(value, other[id]) for id, value in weights.items())


def test_weights_equal_those_of_an_eager_loop_with_clipping_and_a_scheduler():
    module = network()
    other = copy.deepcopy(module)
    weights = []
    optimiser = torch.optim.AdamW(module.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    means = []
    ipu_emu.torch.train(
        module, nn.CrossEntropyLoss(), optimiser, (X, Y), epochs=3, batch_size=16, shuffle=False, clip=0.5,
        scheduler=schedule, progress=False, replicas=2, accumulation=2,
        after_epoch=lambda epoch, mean: (means.append(mean), weights.append(module[0].weight.detach().clone()))
    )  # fmt: skip
    optimiser = torch.optim.AdamW(other.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    for epoch in range(3):
        losses = []
        for start in range(0, 48, 16):
            optimiser.zero_grad()
            losses.append(F.cross_entropy(other(X[start : start + 16]), Y[start : start + 16]))
            losses[-1].backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            optimiser.step()
        schedule.step()
        assert means[epoch] == pytest.approx(float(sum(losses).detach()) / 3, abs=1e-5)
        torch.testing.assert_close(weights[epoch], other[0].weight.detach(), rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert type(mine) is nn.Parameter
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_number_of_ipus_changes_no_bit():
    expected = trained(accumulation=8)
    assert same(expected, trained(accumulation=8, ipus=2))
    assert same(expected, trained(accumulation=8, ipus=4))


class _Tied(nn.Module):
    """Its table is read by the first and the last layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.table = nn.Embedding(9, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.cross_entropy(F.linear(x, self.table.weight), ids)


def test_a_tied_weight_is_kept_on_its_first_ipu():
    states = []
    for ipus in (1, 2, 3):
        module = _Tied()
        adam = torch.optim.Adam(module.parameters(), 0.01)
        ids = torch.randint(0, 9, (32,), generator=torch.Generator().manual_seed(5))
        ipu_emu.torch.train(module, None, adam, ids, batch_size=16, accumulation=8, ipus=ipus, progress=False)
        states.append(module.state_dict())
    assert same(states[0], states[1])
    assert same(states[0], states[2])


def test_statistics_of_norms_are_the_same_on_several_ipus():
    states = []
    for ipus in (1, 3):
        torch.manual_seed(4)
        module = nn.Sequential(
            *(layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()))
        )
        sgd = torch.optim.SGD(module.parameters(), 0.1)
        ipu_emu.torch.train(
            module, F.cross_entropy, sgd, (X, Y), batch_size=40, accumulation=5, ipus=ipus, progress=False
        )
        states.append(module.state_dict())
    assert same(*states)


def test_every_kind_of_data_gives_the_same_batches():
    expected = trained()
    samples = TensorDataset(X, Y)
    batches = [(X[k : k + 16], Y[k : k + 16]) for k in (0, 16, 32)]
    stream = DataLoader(_Stream(), batch_size=16)
    for data in (samples, DataLoader(samples, batch_size=16), [*zip(X, Y, strict=True)], _Iterable(batches), stream):
        assert same(expected, trained(data))
    with pytest.raises(ValueError, match="16 and of 15 samples"):
        trained(_Iterable([(X[:16], Y[:15])]), replicas=2)


class _Stream(IterableDataset):
    def __iter__(self):
        return zip(X, Y, strict=True)


class _Iterable:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_forward_may_return_the_loss_and_take_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x, labels):
            return {"loss": F.cross_entropy(self.body(x), labels), "other": x}

    expected = trained()
    module = Model()
    optimiser = torch.optim.SGD(module.parameters(), 0.2, momentum=0.9)
    batches = _Iterable([{"x": X[k : k + 16], "labels": Y[k : k + 16]} for k in (0, 16, 32)])
    ipu_emu.torch.train(module, None, optimiser, batches, progress=False)
    assert same(expected, module.body.state_dict())


def test_parameters_that_the_optimiser_does_not_have_are_not_trained():
    module = network()
    before = copy.deepcopy(module.state_dict())
    ipu_emu.torch.train(module, F.cross_entropy, torch.optim.SGD(module[4].parameters(), 0.1), (X, Y), progress=False)
    after = module.state_dict()
    assert [id for id in before if not torch.equal(before[id], after[id])] == ["4.weight", "4.bias"]
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("every", [None, 2])
def test_a_run_that_was_broken_off_continues_from_its_checkpoint(tmp_path, every):
    expected = trained(epochs=3, shuffle=True)

    def broken_off(epoch, mean):
        if epoch == 2:
            raise KeyboardInterrupt

    settings = {"epochs": 3, "shuffle": True, "checkpoints": tmp_path, "checkpoint_every": every}
    with pytest.raises(KeyboardInterrupt):
        trained(after_epoch=broken_off, **settings)
    assert same(expected, trained(**settings))


def test_each_sample_is_used_once_an_epoch_however_replicas_are_spread():
    samples = (torch.arange(48), torch.arange(48))
    for instances in (1, 2, 4):
        seen = []
        for instance in range(instances):
            local = 4 // instances
            spread = Spread(24, 2, 4, instance * local, local)
            batches = batches_of(samples, 24, shuffle=True, seed=3)
            seen.append(torch.stack([batch[0].reshape(2, local, 3) for batch in batches.epoch(spread, 0, 0)]))
        order = torch.cat(seen, 2)  # [batch, accumulation, replica, sample]
        assert sorted(order.flatten().tolist()) == list(range(48))
        if instances == 1:
            first = order
        assert torch.equal(order, first)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 9, "replicas": 2}, "batch_size 9 is not divisible by 2 replicas; use a multiple of 2"),
        ({"batch_size": 4, "ipus": 4}, "a pipeline of 4 IPUs needs 7 micro-batches.*use a multiple of 8"),
        ({"batch_size": 12, "accumulation": 5}, "accumulation = 5 does not fit.*use one of 1, 2, 3, 4, 6, 12"),
        ({"batch_size": 64}, "there are 48 samples, and a batch has 64; use a smaller batch_size"),
        ({"ipus": 0}, "ipus = 0; use at least 1"),
        (
            {"loss": lambda y, t: F.cross_entropy(y, t, reduction="none")},
            r"the loss must be one number.*shape \[16\]",
        ),
        ({"data": (X,), "loss": None}, r"the loss must be one number.*shape \[16, 3\]"),
        ({"data": (X,)}, "a batch has one element, and the loss needs two"),
        ({"batch_size": 0}, "batch_size = 0; use at least 1"),
        ({"batch_size": -1}, "batch_size = -1; use at least 1"),
        ({"epochs": -1}, "epochs = -1; use at least 0"),
        ({"data": (X, Y[:5])}, r"shapes \[48, 6\], \[5\]; give tensors with the same number of samples"),
        ({"data": (X, Y[0])}, r"shapes \[48, 6\], \[\]; give tensors with the same number of samples"),
        ({"data": (X[:0], Y[:0])}, "there are no samples; give at least one batch"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        trained(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": (X.numpy(), Y.numpy())}, "data is a tuple of ndarray, ndarray; make each a tensor"),
        ({"data": (X.tolist(), Y.tolist())}, "data is a tuple of list, list; make each a tensor"),
        ({"data": "train.csv"}, "data is a str; give tensors, a data set"),
        ({"loss": "mse"}, "the loss is a str; give a function"),
    ],
)
def test_values_of_the_wrong_type_are_named(settings, message):
    with pytest.raises(TypeError, match=message):
        trained(**settings)


def test_no_optimiser_and_no_module_are_named():
    with pytest.raises(TypeError, match="NoneType"):
        ipu_emu.torch.train(network(), F.cross_entropy, None, (X, Y))
    with pytest.raises(TypeError, match=r"Linear.*torch\.nn\.Module"):
        ipu_emu.torch.train(nn.Linear, F.cross_entropy, None, (X, Y))


def test_an_iterator_and_a_module_in_evaluation_mode_are_refused():
    with pytest.raises(TypeError, match=r"generator.*tensors"):
        trained(data=(batch for batch in [(X, Y)]))
    with pytest.raises(ValueError, match=r"call module.train\(\)"):
        ipu_emu.torch.train(network().eval(), None, None, X)


def test_progress_has_a_line_for_each_epoch(capsys):
    trained(progress=True, epochs=2)
    lines = capsys.readouterr().err.splitlines()
    assert [line[:43] for line in lines] == [
        "[##########..........]  50 %   epoch 1 of 2",
        "[####################] 100 %   epoch 2 of 2",
    ]


def test_all_spreads_of_replicas_give_the_same_module_on_all_instances():
    digests = []
    for instances in (1, 2, 4):
        command = [sys.executable, "-m", "poprun_py", "-v", "--num-instances", str(instances), "--num-replicas", "4"]
        command += [*warm_python(*PYTORCH_FACES), str(PROGRAMS / "ipu_emu/torch_train.py")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        digests += [line.split("trained ")[1] for line in done.stdout.splitlines() if "trained " in line]
        (said,) = [line for line in done.stderr.splitlines() if "weights " in line]
        assert said == f"[1,0]<stderr>:weights {digests[-1]}"
    assert len(digests) == 7
    assert len(set(digests)) == 1


def test_progress_gives_no_rate_before_a_step_was_timed(capsys):
    trained(progress=True, epochs=1, batch_size=48)
    assert "samples/s" not in capsys.readouterr().err
    trained(progress=True, epochs=1, batch_size=16)
    assert "samples/s" in capsys.readouterr().err


def test_a_program_that_is_only_compiled_needs_a_cache():
    with pytest.raises(ValueError, match=r"enableExecutableCaching"):
        trained(options=poptorch.Options().useOfflineIpuTarget())
