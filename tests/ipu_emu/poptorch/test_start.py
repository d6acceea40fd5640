"""Start: tracing, compiling and attaching do no work that their result does not need."""

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.engine import Engine  # noqa: E402

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.seen, self.fails = torch.nn.Linear(3, 2), [], False

    def forward(self, x):
        self.seen.append(gc.isenabled())
        if self.fails:
            raise ValueError("no forward")
        return poptorch.identity_loss(self.fc(x), reduction="mean")


def test_the_collector_is_off_while_a_module_is_traced_and_on_afterwards():
    module = Model()
    poptorch.inferenceModel(module)(torch.ones(1, 3))
    assert (module.seen[0], gc.isenabled()) == (False, True)
    module.fails = True
    with pytest.raises(Exception, match="no forward"):
        poptorch.inferenceModel(module)(torch.ones(1, 3))
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        poptorch.inferenceModel(Model())(torch.ones(1, 3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_states_that_are_zero_are_not_copied_to_a_new_device_and_trained_ones_are(monkeypatch):
    written = []
    write = Engine.write

    def recorded(self, id, value):
        written.append(id)
        write(self, id, value)

    monkeypatch.setattr(Engine, "write", recorded)
    torch.manual_seed(0)
    module = Model()
    optimizer = poptorch.optim.Adam(module.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, None, optimizer)
    model(torch.ones(1, 3))
    assert {"fc.weight", "fc.bias"} <= set(written)
    assert not [id for id in written if id.startswith("Accl")]
    before = {id: value.numpy().copy() for id, value in optimizer.state_dict()["ipu_state"].items()}
    assert before["Accl1___fc.weight"].any()
    model.detachFromDevice()
    model.attachToDevice()
    after = optimizer.state_dict()["ipu_state"]
    assert all(np.array_equal(before[id], after[id].numpy()) for id in before)
    assert "Accl1___fc.weight" in written
