"""Sends and receives over gcl: order, tags, any source, long and short messages, monitored barriers."""

from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

import gcl.torch  # noqa: E402
from ipu_emu.trace import read_run  # noqa: E402
from ipu_emu.trace.timelines.flows import flows  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

SHORT, LONG = 5, 300_000


def exchanges():
    """A ring of each size, tags out of order, more messages than a ring has slots, and any source."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    good = []
    for size in (0, SHORT, LONG):
        there, back = torch.full((size,), float(rank)), torch.empty(size)
        requests = [dist.isend(there, (rank + 1) % ranks), dist.irecv(back, (rank - 1) % ranks)]
        for request in requests:
            request.wait()
        good.append(bool((back == (rank - 1) % ranks).all()))
    if rank == 0:
        requests = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in range(40)]
        strided = torch.zeros(6, 2)
        sources = [dist.recv(strided[:, 1], tag=99) for _ in range(ranks - 1)]
        good.append(sorted(sources) == [1, 2] and strided.sum().item() == 6.0 * sources[-1])
        for request in requests:
            request.wait()
    else:
        dist.send(torch.full((6,), float(rank)), 0, tag=99)
    if rank == 1:
        got = torch.empty(1)
        for tag in reversed(range(40)):
            dist.recv(got, 0, tag=tag)
            good.append(got.item() == tag)
    return all(good)


def without_waiting():
    """A receive completes although nobody waits for it, and its future has a result."""
    if dist.get_rank() == 0:
        dist.send(torch.ones(LONG), 1)
        return True
    x = torch.zeros(LONG)
    request = dist.irecv(x, 0)
    request.get_future().wait()
    return bool((x == 1).all()) and request.is_completed()


def in_a_barrier_meanwhile():
    """More messages than a ring has slots, whose source makes no other call of messages until they have arrived."""
    messages = [torch.full((3,), float(tag)) for tag in range(40)]
    if dist.get_rank() == 0:
        requests = [dist.isend(message, 1, tag=tag) for tag, message in enumerate(messages)]
        dist.barrier()
        for request in requests:
            request.wait()
        return True
    received = [torch.empty(3) for _ in messages]
    for tag, message in enumerate(received):
        dist.recv(message, 0, tag=tag)
    dist.barrier()
    return all(map(torch.equal, received, messages))


def past_a_full_ring():
    """A message to a rank that listens, while those to another rank have no room."""
    rank, pair = dist.get_rank(), dist.new_group([1, 2])
    x = torch.ones(1)
    if rank == 0:
        requests = [dist.isend(x, 1) for _ in range(40)]
        dist.send(x, 2)
        for request in requests:
            request.wait()
    elif rank == 1:
        dist.barrier(pair)
        for _ in range(40):
            dist.recv(x, 0)
    else:
        dist.recv(x, 0)
        dist.barrier(pair)
    return True


def many_that_are_read_in_place():
    """Messages that the target reads from the source's memory; the source waits until each is confirmed."""
    messages = [gcl.torch.empty(3) for _ in range(14)]
    for _ in range(1000):
        if dist.get_rank() == 0:
            for request in [dist.isend(message, 1) for message in messages]:
                request.wait()
        else:
            for message in messages:
                dist.recv(message, 0)
    return True


def send_without_waiting():
    """The future of a send has a result although nobody waits for the send itself."""
    if dist.get_rank() == 1:
        dist.recv(torch.empty(LONG), 0)
        return True
    request = dist.isend(torch.ones(LONG), 1)
    request.get_future().wait()
    return request.is_completed()


def wrong_size():
    try:
        if dist.get_rank() == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(torch.empty(5), 0)
    except ValueError as error:
        return str(error)
    return ""


def monitored(all_ranks):
    gcl.torch.monitored_barrier(timeout=timedelta(seconds=10))
    try:
        if dist.get_rank() != 1:
            gcl.torch.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=all_ranks)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def test_messages_are_matched_by_source_and_tag():
    assert run_ranks(3, exchanges) == [True] * 3


def test_a_receive_that_nobody_waits_for_completes():
    assert run_ranks(2, without_waiting) == [True] * 2


def test_messages_for_a_full_ring_are_sent_while_their_source_is_in_a_collective():
    assert run_ranks(2, in_a_barrier_meanwhile, timeout=5) == [True] * 2


def test_messages_for_a_full_ring_do_not_delay_those_to_other_ranks():
    assert run_ranks(3, past_a_full_ring, timeout=5) == [True] * 3


def test_each_of_many_sends_completes_when_its_message_has_arrived():
    assert run_ranks(2, many_that_are_read_in_place, timeout=5) == [True] * 2


def test_the_future_of_a_send_has_a_result():
    assert run_ranks(2, send_without_waiting) == [True] * 2


def test_a_tensor_of_another_size_is_named_where_it_is_received():
    assert "rank 0 sends 16 bytes with tag 0, but the tensor has 20" in run_ranks(2, wrong_size)[1]


@pytest.mark.parametrize("all_ranks", [False, True])
def test_rank_0_names_the_ranks_missing_in_a_monitored_barrier(all_ranks):
    first, late, other = run_ranks(3, monitored, all_ranks)
    assert first.startswith("Ranks 1 failed" if all_ranks else "Rank 1 failed to pass monitoredBarrier in 500 ms")
    assert late == ""
    assert "Rank 2 successfully reached monitoredBarrier" in other


def test_every_message_of_a_trace_has_both_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("IPU_EMU_TRACE", str(tmp_path / "run"))
    assert run_ranks(3, exchanges) == [True] * 3
    run = read_run(tmp_path / "run")
    transfers = flows(run)
    assert len(transfers) == 3 * 3 + 40 + 2  # three rings, one message of each tag, and two to rank 0
    assert all(flow.is_possible and flow.sender is not flow.receiver for flow in transfers)
    ends = {"send": 0, "receive": 0}
    for process in run.processes:
        for span in process.spans:
            name = process.trace.names[int(span["name"])]
            if name.name in ends and name.args["bytes"] == 4 * LONG:
                ends[name.name] += 1
                assert (name.args["target"] - name.args["source"]) % 3 == 1
    assert ends == {"send": 3, "receive": 3}
