"""DistributedDataParallel and FSDP over gcl: the same weights as with gloo, on every rank, with every hook."""

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gcl.torch  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 20
HOOKS = {"none": None, "ddp": gcl.torch.ddp_hook, "fp16": gcl.torch.fp16_hook, "bf16": gcl.torch.bf16_hook}


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(30, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 4))


def flat(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def train(model, samples, ranks, rank, steps=STEPS, optimiser=None):
    """``steps`` updates with the same samples, divided over the ranks."""
    optimiser = (optimiser or momentum)(model.parameters())
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        x, y = torch.randn(samples, 30, generator=generator), torch.randint(0, 4, (samples,), generator=generator)
        optimiser.zero_grad()
        mine = x.chunk(ranks)[rank], y.chunk(ranks)[rank]
        nn.functional.cross_entropy(model(mine[0]), mine[1]).backward()
        optimiser.step()
    return flat(model)


def weights(hook, as_view):
    """The weights after training with DDP in several buckets."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.2, gradient_as_bucket_view=as_view)
    if HOOKS[hook]:
        model.register_comm_hook(None, HOOKS[hook])
    vector = train(model, 24, dist.get_world_size(), dist.get_rank())
    everyone = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, vector)
    assert all(torch.equal(vector, other) for other in everyone)
    return vector.numpy()


def fully_sharded(allocate):
    """The weights after training with FSDP2, buffers from gcl or from PyTorch."""
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    if allocate:
        model.set_allocate_memory_from_process_group_for_comm(True)
    train(model, 24, dist.get_world_size(), dist.get_rank(), steps=5)
    return torch.cat([parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()]).numpy()


def all_weights(data_parallel, fully_sharded_with):
    """The weights of every training, in one job for all of them."""
    replicated = {case: weights(*case) for case in data_parallel}
    return replicated, {allocate: fully_sharded(allocate) for allocate in fully_sharded_with}


@pytest.fixture(scope="module")
def gloo():
    return run_ranks(2, all_weights, [("none", False)], [False], backend="gloo")[0]


@pytest.fixture(scope="module")
def trained(gloo):
    """The weights of each rank after training with gcl."""
    return run_ranks(2, all_weights, [(hook, view) for hook in HOOKS for view in (False, True)], [False, True])


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize("hook", ["none", "ddp"])
def test_weights_are_those_of_gloo_on_every_rank(hook, as_view, gloo, trained):
    for replicated, _ in trained:
        assert abs(replicated[hook, as_view] - gloo[0]["none", False]).max() < 1e-6


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize("hook", ["fp16", "bf16"])
def test_half_precision_hooks_train_nearly_the_same(hook, as_view, trained):
    replicated, _ = trained[0]
    assert 0 < abs(replicated[hook, as_view] - replicated["none", as_view]).max() < 0.02


@pytest.mark.parametrize("allocate", [False, True])
def test_fully_sharded_weights_are_those_of_gloo(allocate, gloo, trained):
    assert abs(trained[0][1][allocate] - gloo[1][False]).max() < 1e-6


def shared_memory():
    """A tensor that the ranks share is reduced where it is, together with private ones of other ranks."""
    rank = dist.get_rank()
    x = gcl.torch.empty(100_000) if rank == 0 else torch.empty(100_000)
    x.fill_(rank + 1.0)
    dist.all_reduce(x)
    y = gcl.torch.empty(3, 5, dtype=torch.bfloat16)
    parts = torch.arange(2 * 700_000.0) + rank
    mine = torch.empty(700_000)
    dist.reduce_scatter_single(mine, gcl.torch.empty(1_400_000).copy_(parts) if rank else parts)
    return (
        x[-1].item(),
        list(y.shape),
        str(y.dtype),
        bool((mine == 2 * (mine.numel() * rank + torch.arange(700_000.0)) + 1).all()),
    )


def test_shared_and_private_tensors_meet_in_one_call():
    assert run_ranks(2, shared_memory) == [(3.0, [3, 5], "torch.bfloat16", True)] * 2


def accumulated():
    """The weights after 20 steps of four micro-batches, which are divided among the ranks and added up in pairs.

    All divisors are powers of two, so that it does not matter where the gradients are divided.
    """
    rank, ranks, vectors = dist.get_rank(), dist.get_world_size(), []
    per_rank = 4 // ranks
    for hook in ("none", "ddp"):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.2, gradient_as_bucket_view=True)
        if HOOKS[hook]:
            model.register_comm_hook(None, HOOKS[hook])
        optimiser, generator = momentum(model.parameters()), torch.Generator().manual_seed(2)
        for _ in range(STEPS):
            x, y = torch.randn(4, 6, 30, generator=generator), torch.randint(0, 4, (4, 6), generator=generator)
            optimiser.zero_grad()
            first_pair = []
            for place in range(per_rank):
                if place == 2:
                    first_pair = [parameter.grad.clone() for parameter in model.parameters()]
                    optimiser.zero_grad()
                batch = rank * per_rank + place
                with nullcontext() if place == per_rank - 1 else model.no_sync():
                    (nn.functional.cross_entropy(model(x[batch]), y[batch]) / per_rank).backward()
            for parameter, gradient in zip(model.parameters(), first_pair, strict=False):
                parameter.grad += gradient
            optimiser.step()
        vectors.append(
            torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy().tobytes()
        )
    return vectors


def test_weights_have_the_same_bits_however_micro_batches_are_spread_over_ranks():
    vectors = [weights for ranks in (1, 2, 4) for weights in run_ranks(ranks, accumulated)]
    assert len(vectors) == 7
    assert all(weights == vectors[0] for weights in vectors)
    assert vectors[0][0] == vectors[0][1]  # with the hook, and without


def uneven(hook):
    """Whether all gradients arrive, or the error, if rank 1 has more samples and DDP makes rank 0's calls."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.2)
    if HOOKS[hook]:
        model.register_comm_hook(None, HOOKS[hook])
    try:
        with model.join():
            for step in range(2 + dist.get_rank()):
                model(torch.full((2, 30), 0.1 * step)).sum().backward()
    except (dist.DistBackendError, ValueError) as error:
        return str(error)
    return bool(all(parameter.grad.abs().sum() > 0 for parameter in model.parameters()))


@pytest.mark.parametrize("hook", ["none", "fp16"])
def test_ranks_may_have_different_numbers_of_samples(hook):
    assert run_ranks(2, uneven, hook) == [True, True]


def test_a_hook_that_moves_buckets_is_refused_where_ranks_have_different_numbers_of_samples():
    for said in run_ranks(2, uneven, "ddp"):
        assert "in model.join() register gcl.torch.bf16_hook, or no hook" in said
