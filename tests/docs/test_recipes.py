"""Recipes: the blocks of code of the page, applied to a copy of the packages, extend them as the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("poprun_py", "popdist_py", "gcl", "ipu_emu")
BLOCK = re.compile(r"^( *)```python\n( *# (\S+\.py)\n.*?)^ *```$", re.DOTALL | re.MULTILINE)

POPART = """
import numpy as np
from gcl.explain import main
from ipu_emu import models, popart
from ipu_emu.hostio import digest

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
y = builder.aiGraphcore.logit([x])
builder.addOutputTensor(y)
device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
session.prepareDevice()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({x: np.float32([0.25, 0.5, 0.9])}, anchors))
np.testing.assert_allclose(anchors[y], np.log([1 / 3, 1, 9]), rtol=1e-5, atol=1e-6)

def trained(schedule):
    model, options = models.mlp((8, 8, 3), batch=2), popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 4
    if schedule:
        options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Auto, True
        options.pipelineSchedule = schedule
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2 if schedule else 1})
    flow, sgd = popart.DataFlow(1, [model.loss]), popart.ConstSGD(0.1)
    session = popart.TrainingSession(model.proto, flow, model.loss, sgd, device, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    data = {model.data: np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}
    data[model.labels] = (np.arange(8) % 3).astype(np.int32)
    session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    session.weightsToHost()
    return digest(session)

assert trained("spaced") == trained("")

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
w = builder.addInitializedInputTensor(np.float32([1, 2, 3]), "w")
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
sign = popart.SoftSign({"defaultLearningRate": (0.5, False), "defaultEps": (1, True)})
session = popart.TrainingSession(builder.getModelProto(), popart.DataFlow(1, [loss]), loss, sign, device)
session.prepareDevice()
session.weightsFromHost()
session.run(popart.PyStepIO({x: np.float32([1, -3, 0])}, session.initAnchorArrays()))
session.weightsToHost()
weights = {w: np.zeros(3, np.float32)}
session.readWeights(popart.PyWeightsIO(weights))
np.testing.assert_array_equal(weights[w], np.float32([1 - 0.25, 2 + 0.375, 3]))
"""
METHOD = """
import runpy, sys
sys.argv = ["explain", "--replicas", "3", "--bytes", "1e6"]
runpy.run_module("gcl.explain", run_name="__main__")
"""
PYTORCH = """
import torch
from ipu_emu import poptorch

class Step(torch.nn.Module):
    def forward(self, x, at_zero):
        return torch.heaviside(x, at_zero)

x, at_zero = torch.tensor([-1.5, 0.0, 2.0]), torch.tensor([0.5, 0.5, 0.5])
assert poptorch.inferenceModel(Step())(x, at_zero).tolist() == torch.heaviside(x, at_zero).tolist()
"""

TENSORFLOW = """
import numpy as np
import ipu_emu.tensorflow.install
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

with tf.Graph().as_default(), tf.Session() as session:
    a, b = (tf.placeholder(tf.float32, [4, 3]) for _ in range(2))
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        y = ipu.ipu_compiler.compile(tf.linalg.cross, [a, b])
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    first, second = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    result, = session.run(y, {a: first, b: second})
np.testing.assert_allclose(result, np.cross(first, second), rtol=1e-5, atol=1e-6)
"""
LAUNCHER = """
import subprocess, sys
instance = ["-c", "import os; print(os.environ['PYTHONHASHSEED'])"]
job = ["-m", "poprun_py", "--num-instances", "2", "--hash-seed", "7", sys.executable, *instance]
print(subprocess.run([sys.executable, *job], capture_output=True, text=True, check=True).stdout)
"""


def apply(block: str, file: Path) -> None:
    """Insert the new lines of ``block`` next to those that ``file`` has; write a file that does not exist."""
    if not file.exists():
        file.write_text(block)
        return
    lines = file.read_text().split("\n")
    for part in block.split("...\n"):
        wanted = part.rstrip("\n").split("\n")
        shared = [line for line in wanted if line.strip() and lines.count(line) == 1]
        assert len(shared) == 1, f"one line of this must be in {file.name}, the others new:\n{part}"
        at = lines.index(shared[0])
        lines[at : at + 1] = wanted
    file.write_text("\n".join(lines))


#: Files of caches that other workers may rename while they are copied.
UNFINISHED = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with the caches of unchanged modules and kernels, and all blocks of the page."""
    folder = tmp_path_factory.mktemp("recipes")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=UNFINISHED)
    blocks = BLOCK.findall((ROOT / "docs/guides/recipes.md").read_text())
    assert len(blocks) > 5
    for _, block, name in blocks:
        apply(dedent(block).partition("\n")[2], folder / name)
    return folder


def run(source: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_op_and_a_schedule_of_the_page_work(extended: Path) -> None:
    run(POPART, extended)


def test_a_method_of_the_page_is_drawn_and_chosen(extended: Path) -> None:
    assert "two_ways" in run(METHOD, extended)


def test_an_aten_rule_of_the_page_works(extended: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run(PYTORCH, extended)


def test_a_tensorflow_rule_of_the_page_works(extended: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    run(TENSORFLOW, extended)


def test_an_option_of_the_page_acts_in_all_instances(extended: Path) -> None:
    assert run(LAUNCHER, extended).count("7") == 2
