"""Traces of PopTorch programs: steps, phases, and a profile of each model."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu import trace  # noqa: E402
from ipu_emu.trace import read_run  # noqa: E402
from ipu_emu.trace.findings import analyse  # noqa: E402
from ipu_emu.trace.program_profiles import read_profiles  # noqa: E402

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, y=None):
        out = self.layer(x)
        return out if y is None else (out, torch.nn.functional.mse_loss(out, y))


def test_a_report_has_the_steps_and_both_programs(tmp_path):
    trace.start(tmp_path)
    try:
        module, x = Model(), torch.ones(2, 4)
        training = poptorch.trainingModel(module)
        for _ in range(3):
            training(x, x)
        poptorch.inferenceModel(module)(x)
    finally:
        trace.stop()
    (use,) = analyse(read_run(tmp_path)).uses
    assert use.steps == 4
    assert {"compute", "compilation", "initialisation", "weight loading"} <= use.categories.keys()
    profiles = read_profiles(tmp_path).whole
    assert sorted(each["name"] for each in profiles) == ["inference", "training"]
    assert all(each["instructions"] and each["memory"] for each in profiles)
