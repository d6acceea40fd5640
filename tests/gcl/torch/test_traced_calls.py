"""Collectives of PyTorch over gcl are in traces: with bytes, operator, group and method, matched between ranks."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

import gcl.torch  # noqa: E402, F401
from ipu_emu.trace import read_run  # noqa: E402
from ipu_emu.trace.collective_calls import collective_calls  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

SIZE = 1001


def collectives():
    """Some at once and some in the background, of all ranks and of each rank alone."""
    x = torch.ones(SIZE)
    for _ in range(3):
        dist.all_reduce(x)
    works = [dist.all_reduce(torch.ones(SIZE), op=dist.ReduceOp.MAX, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    dist.broadcast(x, 0)
    alone, _ = dist.new_subgroups(1)
    dist.all_reduce(torch.ones(7), group=alone)
    dist.barrier()


@pytest.mark.parametrize(("hosts", "method"), [(None, "direct"), (("a", "b"), "two_levels")])
def test_every_collective_is_matched_between_the_ranks(hosts, method, tmp_path, monkeypatch):
    monkeypatch.setenv("IPU_EMU_TRACE", str(tmp_path / "run"))
    run_ranks(2, collectives, **({"hosts": hosts} if hosts else {}))
    matched = collective_calls(read_run(tmp_path / "run"))
    calls = {
        (call.name, call.about["operator"], call.nbytes): (len(call.begins), call.about["method"])
        for call in matched
        if len(call.instances) == 2
    }
    assert calls["all_reduce", "sum", 4 * SIZE] == (3, method)
    assert calls["all_reduce", "max", 4 * SIZE] == (2, method)
    assert calls["broadcast", "", 4 * SIZE] == (1, method)
    assert calls["barrier", "", 0][0] >= 1
    alone = [call for call in matched if call.nbytes == 28]
    assert sorted(call.instances for call in alone) == [[0], [1]]
    for call in matched:
        assert (call.waits >= 0).all()
        assert (call.moves >= 0).all()
