"""Start: tracing, compiling and attaching do no unnecessary work."""

import gc
import os
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.engine import Engine  # noqa: E402
from ipu_emu.poptorch.executor.paused_collection import paused_collection  # noqa: E402

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


def test_a_disabled_collector_remains_disabled():
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


class Products(torch.nn.Module):
    """``seen`` are the results of products while the module is traced."""

    def __init__(self, width=3):
        super().__init__()
        self.fc, self.conv, self.seen = torch.nn.Linear(width, 2), torch.nn.Conv1d(1, 2, 2), []
        self.register_buffer("table", torch.eye(3))

    def forward(self, x):
        known = self.table @ self.table
        assert known.sum() == 3  # the host computes its value
        self.seen[:] = [self.fc(x), self.conv(x[:, None]), x @ x.t(), torch.bmm(x[None], self.table[None])]
        return sum(tensor.sum() for tensor in self.seen)


def test_products_of_parameters_and_inputs_are_not_computed_while_a_module_is_traced():
    module, x = Products(), torch.randn(2, 3)
    output = poptorch.inferenceModel(module)(x)
    traced = [tensor.detach().clone() for tensor in module.seen]
    assert torch.allclose(output, module(x).sum(), atol=1e-5)
    assert [tensor.shape for tensor in traced] == [tensor.shape for tensor in module.seen]
    assert not any(tensor.any() for tensor in traced)
    assert all(tensor.any() for tensor in module.seen)


def test_factors_that_do_not_match_are_refused_as_pytorch_does():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x2\)"):
        poptorch.inferenceModel(Products(4))(torch.randn(2, 3))


def test_large_weights_are_copied_to_a_new_device_by_several_threads(monkeypatch):
    from ipu_emu.session import host_weights

    threads, write = set(), Engine.write

    def recorded(self, id, value):
        threads.add(threading.current_thread().name)
        write(self, id, value)

    monkeypatch.setattr(Engine, "write", recorded)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    module = torch.nn.Linear(4, 4)
    for least, by_caller in ((1 << 30, True), (1, False)):
        monkeypatch.setattr(host_weights, "WORTH_A_THREAD", least)
        threads.clear()
        model = poptorch.inferenceModel(module)
        x = torch.randn(2, 4)
        assert torch.allclose(model(x), module(x), atol=1e-6)
        assert (threads == {"MainThread"}) is by_caller


def test_the_first_collection_afterwards_does_not_scan_the_new_objects():
    young = []

    def note(phase, info):
        if phase == "start":
            young.append(len(gc.get_objects(generation=0)))

    gc.unfreeze()  # what the test run has frozen
    gc.callbacks.append(note)
    try:
        with paused_collection():
            lists = [[number] for number in range(50_000)]
        more = [[number] for number in range(2 * gc.get_threshold()[0])]
    finally:
        gc.callbacks.remove(note)
        gc.freeze()
    assert len(lists) > len(more)
    assert young
    assert max(young) < len(more)


def test_objects_frozen_by_the_program_remain_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collection():
        pass
    assert gc.get_freeze_count() == frozen > 0


def test_a_pause_without_new_objects_does_not_count_the_frozen_ones(monkeypatch):
    """Counting them takes 25 ms for each million."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("frozen objects were counted"))
    gc.collect()
    with paused_collection():
        pass
