"""The digits example: compared with a numpy loop and with PyTorch, for every layout of replicas over processes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popdist_py
from tests.helpers.mpi_jobs import MPICH, ROOT, Mpi, every_mpi
from tests.helpers.warm_processes import EMULATOR, warm_python
from tests.ipu_emu.helpers.digits import load_example, local_training, step_data
from tests.ipu_emu.helpers.digits_in_numpy import ByHand
from tests.ipu_emu.helpers.example_runs import ExampleMain, example_main

__all__ = ["example_main"]

EXAMPLE = ROOT / "examples" / "digits.py"
EPOCHS = 30


@pytest.fixture
def example() -> Iterator[Any]:
    """The example's module, with this process as the only instance."""
    popdist_py.init()
    yield load_example()
    popdist_py.finalizeBackend()


@pytest.mark.parametrize(("replicas", "epochs"), [(1, 3), (4, 3), pytest.param(4, EPOCHS, marks=pytest.mark.full)])
def test_weights_equal_those_of_a_plain_loop(example: Any, replicas: int, epochs: int) -> None:
    """Within 1e-6 per tensor (norms), even after the 660 updates of 30 epochs: rounding errors do not grow."""
    training = local_training(example, replicas=replicas, epochs=epochs)
    loop = ByHand(example.first_weights(0, np.float32))
    for epoch in range(epochs):
        loss = training.epoch(epoch)
        rate = 0.2 * (1 - epoch / epochs)
        losses = [loop.batch(x, labels, rate) for x, labels in zip(*step_data(training, epoch), strict=True)]
        assert abs(loss - np.mean(losses)) < 1e-6
    for name, value in training.weights().items():
        error = np.linalg.norm(value - loop.w[name]) / np.linalg.norm(loop.w[name])
        assert error < 1e-6, f"{name}: {error:.2e}"


@pytest.mark.torch
@pytest.mark.parametrize("epochs", [6, pytest.param(EPOCHS, marks=pytest.mark.full)])
def test_loss_curve_is_that_of_pytorch(example: Any, epochs: int) -> None:
    """The first epochs of a training of 30."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    training = local_training(example, epochs=EPOCHS)
    w = {
        name: torch.tensor(value, requires_grad=True) for name, value in example.first_weights(0, np.float32).items()
    }
    optimizer = torch.optim.SGD(w.values(), lr=0.2, momentum=0.9)
    functional = torch.nn.functional

    def loss_of(x: Any, labels: Any) -> Any:
        y = torch.tensor(x)
        for layer in ("conv1", "conv2"):
            y = torch.tanh(functional.conv2d(y, w[f"{layer}_weights"], w[f"{layer}_bias"], padding=1))
            y = functional.avg_pool2d(y, 2)
        y = y.flatten(1) @ w["dense_weights"] + w["dense_bias"]
        return functional.cross_entropy(y, torch.tensor(labels).long())

    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = 0.2 * (1 - epoch / EPOCHS)
        losses = []
        for x, labels in zip(*step_data(training, epoch), strict=True):
            optimizer.zero_grad()
            parts = [loss_of(x[a, 0], labels[a, 0]) for a in range(2)]
            (sum(parts) / 2).backward()
            optimizer.step()
            losses += [float(part.detach()) for part in parts]
        assert abs(training.epoch(epoch) - np.mean(losses)) < 1e-4


def run(*command: object, timeout: float = 110.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
    )


def launched(mpi: Mpi, instances: int, weights: Path) -> str:
    """Train two epochs on 4 replicas over ``instances`` processes; the hash of the weights file."""
    launcher = Path(sys.executable).parent / "poprun-py"
    shape = ["--mpi", mpi.mpirun, "--num-instances", instances, "--num-replicas", 4]
    result = run(launcher, *shape, *warm_python(*EMULATOR), EXAMPLE, "--epochs", 2, "--weights-out", weights)
    assert result.returncode == 0, result.stdout + result.stderr
    return hashlib.sha256(weights.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the weights that four replicas in one process train."""
    return launched(MPICH, 1, tmp_path_factory.mktemp("digits") / "w.npz")


@every_mpi
def test_weights_are_bitwise_equal_for_every_spread(
    mpi: Mpi, in_one_process: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With both MPIs; the sample has four processes with MPICH and two with Open MPI."""
    spreads = (1, 2, 4) if request.config.getoption("--full") else (4,) if mpi is MPICH else (2,)
    for instances in spreads:
        assert launched(mpi, instances, tmp_path / f"{instances}.npz") == in_one_process


def test_a_full_run_without_a_launcher_learns(tmp_path: Path) -> None:
    weights = tmp_path / "w.npz"
    result = run(sys.executable, EXAMPLE, "--weights-out", weights)
    assert result.returncode == 0, result.stderr
    assert "Each update: 64 images = 1 replica x 2 micro-batches x 32" in result.stdout
    losses = [float(loss) for loss in re.findall(r"epoch +\d+ of 30 +loss +([\d.]+)", result.stdout)]
    assert len(losses) == EPOCHS
    assert losses[-1] < 0.05 < 1 < losses[0]
    accuracy = re.search(r"test accuracy ([\d.]+) % \((\d+) of 359 test images\)", result.stdout)
    assert accuracy
    assert float(accuracy[1]) >= 97
    assert re.search(r"images/s over 1 replica in 1 instance ", result.stdout)
    assert re.search(r"compute \d+ %, collectives \d+ %, host I/O \d+ %, other \d+ %", result.stdout)
    with np.load(weights) as saved:
        assert {name: saved[name].shape for name in saved} == load_example().WEIGHTS


def test_the_seed_decides_everything(tmp_path: Path, example_main: ExampleMain) -> None:
    hashes = []
    for number, seed in enumerate((1, 1, 2)):
        file = tmp_path / f"{number}.npz"
        example_main("digits.py", "--epochs", 1, "--seed", seed, "--weights-out", file)
        hashes.append(hashlib.sha256(file.read_bytes()).hexdigest())
    assert hashes[0] == hashes[1] != hashes[2]


def test_half_precision_learns_too(example_main: ExampleMain) -> None:
    accuracy = re.search(r"test accuracy ([\d.]+) %", example_main("digits.py", "--half"))
    assert accuracy
    assert float(accuracy[1]) >= 96


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--epochs", "0"], "argument --epochs: '0' was given; give a whole number of at least 1"),
        (["--epochs", "many"], "argument --epochs: 'many' was given; give a whole number of at least 1"),
        (["--seed", "-1"], "argument --seed: '-1' was given; give a whole number of at least 0"),
        (["--batch", "5000"], "--batch 5000 is more than the 1438 training images"),
        (["--epoch", "2"], "unrecognized arguments: --epoch 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "message",
)
def test_bad_arguments_are_one_clear_message(
    arguments: list[str], text: str, example_main: ExampleMain, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program ends with SystemExit; its message is on stderr, or is printed there by the interpreter."""
    with pytest.raises(SystemExit) as ended:
        example_main("digits.py", *arguments)
    assert ended.value.code
    assert text in f"{capsys.readouterr().err}{ended.value.code}"


def test_the_message_of_a_process_has_no_traceback() -> None:
    result = run(*warm_python(*EMULATOR), EXAMPLE, "--weights-out", "/no/such/place/w.npz")
    assert result.returncode != 0
    assert "there is no directory /no/such/place; make it first" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_held_back_image_is_counted_once(example: Any) -> None:
    """359 images over 4 replicas: 90 each, one of them padding."""
    training = local_training(example, replicas=4, epochs=1)
    training.epoch(0)
    weights = training.weights()
    count = example.count_correct(training.digits, training.place, weights, training.device)
    images, labels = training.digits.test
    loop = ByHand(weights, np.float64)
    answers = loop.probabilities(images).argmax(axis=1)
    assert count == int((answers == labels).sum())


def test_a_run_that_is_started_again_continues(tmp_path: Path) -> None:
    command = [*warm_python(*EMULATOR), str(EXAMPLE), "--epochs", "2", "--checkpoints", str(tmp_path)]
    first, again = (
        subprocess.run(command, capture_output=True, text=True, timeout=250, check=True) for _ in range(2)
    )
    assert "resuming after epoch 2" in again.stdout
    assert re.findall("test accuracy.*", first.stdout) == re.findall("test accuracy.*", again.stdout)


def test_a_checkpoint_of_more_epochs_than_asked_for_has_no_rate(tmp_path: Path, example_main: ExampleMain) -> None:
    example_main("digits.py", "--epochs", 2, "--checkpoints", tmp_path)
    for epochs in (1, 2):
        said = example_main("digits.py", "--epochs", epochs, "--checkpoints", tmp_path)
        assert "were trained before (2 in the checkpoint)" in said
        assert "images/s" not in said
        assert "test accuracy" in said


def test_help_of_an_example_runs_nothing(example_main: ExampleMain, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        example_main("replication.py", "--help")
    assert ended.value.code == 0
    assert "usage: replication.py" in capsys.readouterr().out


def test_a_link_at_a_temporary_name_of_the_weights_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others may write to, they can foresee names that consist of the process id."""
    (tmp_path / "thesis").write_text("text")
    (tmp_path / f".w.npz.{os.getpid()}").symlink_to("thesis")
    load_example().save({"w": np.ones(3, np.float32)}, tmp_path / "w.npz")
    assert (tmp_path / "thesis").read_text() == "text"
    assert np.load(tmp_path / "w.npz")["w"].tolist() == [1, 1, 1]
