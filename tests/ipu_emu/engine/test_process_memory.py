"""Footprint: the memory that a training process takes, beside what its plan says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.mpi_jobs import ROOT

PROGRAM = r"""
import re, sys
import numpy as np
from ipu_emu import models, popart

model = {"resnet8": models.resnet8, "transformer": models.transformer}[sys.argv[1]](batch=8)
session = popart.TrainingSession(
    model.proto, popart.DataFlow(1, [model.loss]), model.loss, popart.Adam({"defaultLearningRate": (0.001, False)}),
    popart.DeviceManager().createCpuDevice(),
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
infos = {id: session.getInfo(id) for id in (model.data, model.labels)}
data = {id: np.zeros(info.shape(), info.data_type_lcase()) for id, info in infos.items()}
for _ in range(3):
    session.run(popart.PyStepIO(data, anchors))
# Not ru_maxrss, which is the parent's where that is larger.
most = int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) * 1024
print(sum(session.getReport().memory.values()), most)
"""


@pytest.mark.parametrize("model", [pytest.param("resnet8", marks=pytest.mark.full), "transformer"])
def test_a_process_takes_little_more_than_its_plan(model: str) -> None:
    """At most 1.3 times the plan and 250 MB for the interpreter, the libraries and compiled kernels."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/tmp")}
    command = [sys.executable, "-c", PROGRAM, model]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=290, check=False)
    assert done.returncode == 0, done.stderr
    plan, resident = map(int, done.stdout.split())
    assert resident < 1.3 * plan + 250e6, f"plan {plan / 1e6:.0f} MB, resident {resident / 1e6:.0f} MB"
