"""Prefaulting: weights are copied to a new engine without waiting for the kernel to provide their pages."""

from __future__ import annotations

import mmap
import resource

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine.replicas.buffers import prefaulted
from ipu_emu.session.host_weights import HostWeights
from tests.ipu_emu.helpers.sessions import train

_PAGES = 4096
#: Pages that a process may touch for other reasons during the test.
_OTHERS = 500


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.parametrize("count", [0, 1, 3])
def test_ranges_have_their_pages_after_the_block_and_are_zero(count):
    ranges = [np.frombuffer(mmap.mmap(-1, _PAGES * 4096), np.uint8) for _ in range(count)]
    with prefaulted([part[1000:] for part in ranges]):
        pass
    before = faults()
    for part in ranges:
        assert not part.any()
        part[:] = 1
    assert faults() - before < _OTHERS


def test_the_thread_ends_with_the_block_even_if_that_fails():
    region = np.frombuffer(mmap.mmap(-1, _PAGES * 4096), np.uint8)
    with pytest.raises(ValueError, match="unbound"), prefaulted([region]):
        raise ValueError("unbound")
    before = faults()
    region[:] = 1
    assert faults() - before < _OTHERS


def test_weights_are_copied_to_a_new_engine_without_making_pages(monkeypatch):
    counts = []
    load = HostWeights.load

    def counted(self, engine, **options):
        before = faults()
        load(self, engine, **options)
        counts.append(faults() - before)

    monkeypatch.setattr(HostWeights, "load", counted)
    weight = np.ones((2048, 2048), np.float32)
    assert weight.nbytes == _PAGES * 4096

    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2048])
    y = builder.aiOnnx.matmul([x, builder.addInitializedInputTensor(weight)])
    loss = builder.aiGraphcore.identityloss([y])
    train(builder, popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), loss, popart.ConstSGD(0.1))
    assert counts
    assert max(counts) < _OTHERS
