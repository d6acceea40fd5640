"""Libraries that PyTorch builds on process groups run over gcl, with the results of one process."""

import socket

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402
from torch import multiprocessing, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402
from tests.gcl.torch.test_training import network, train  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, SAMPLES = 3, 24


def alone(optimiser=None):
    """The weights after training in this process."""
    model = network()
    return train(model, SAMPLES, 1, 0, STEPS, optimiser=optimiser)


def near(actual, wanted):
    return bool((actual - wanted).abs().max() < 1e-5)


def fully_sharded_data_parallel():
    """FSDP of PyTorch 1: sharded, and replicated as DDP does."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    wanted, checks = alone(), []
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        model = FullyShardedDataParallel(network(), sharding_strategy=strategy, device_id=torch.device("cpu"))
        train(model, SAMPLES, dist.get_world_size(), dist.get_rank(), STEPS)
        with FullyShardedDataParallel.summon_full_params(model):
            weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
            checks.append(near(weights, wanted))
    return all(checks)


def zero_redundancy():
    """An optimiser whose state is divided over the ranks, and collected on one."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def trained(optimiser):
        model = DistributedDataParallel(network())
        return train(model, SAMPLES, dist.get_world_size(), dist.get_rank(), STEPS, optimiser=optimiser)

    def divided(parameters):
        optimisers.append(ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.Adam, **settings))
        return optimisers[0]

    def undivided(parameters):
        return torch.optim.Adam(parameters, **settings)

    # With Adam's usual epsilon the rounding of a gradient near 0 would decide the sign of a whole update.
    optimisers, settings = [], {"lr": 0.01, "eps": 1e-4}
    weights = trained(divided)
    optimisers[0].consolidate_state_dict(to=1)
    states = len(optimisers[0].state_dict()["state"]) if dist.get_rank() == 1 else 6
    return torch.equal(weights, trained(undivided)) and near(weights, alone(undivided)) and states == 6


def distributed_tensors():
    """Products of divided matrices, other divisions of them, and a mesh of two dimensions."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    torch.manual_seed(0)
    left, right = torch.randn(8, 6), torch.randn(6, 10)
    mesh = init_device_mesh("cpu", (2,))
    product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
    turned = product.redistribute(mesh, [Shard(1)])
    grid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("rows", "columns"))
    divided = distribute_tensor(left, grid, [Shard(0), Replicate()])
    return (
        near(product.full_tensor(), left @ right)
        and turned.to_local().shape == (8, 5)
        and near(turned.full_tensor(), left @ right)
        and near((divided * 2).sum().full_tensor(), left.sum() * 2)
        and grid["rows"].size() == 2
    )


def pipeline():
    """Two stages of a network, with micro-batches one after the other and in turns forwards and backwards."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, checks = dist.get_rank(), []
    torch.manual_seed(3)
    x, y = torch.randn(8, 30), torch.randint(0, 4, (8,))
    complete = network()
    nn.functional.cross_entropy(complete(x), y).backward()
    for kind in (ScheduleGPipe, Schedule1F1B):
        part = network()[:2] if rank == 0 else network()[2:]
        stage = PipelineStage(part, rank, 2, torch.device("cpu"))
        schedule = kind(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y)
        mine = complete[:2] if rank == 0 else complete[2:]
        pairs = zip(part.parameters(), mine.parameters(), strict=True)
        checks += [near(own.grad, other.grad) for own, other in pairs]
    return all(checks) and len(checks) in (4, 8)


def compiled():
    """Collectives in a compiled function, and those of DDP in a compiled module, which PyTorch calls in between."""
    rank, runs = dist.get_rank(), []

    def exchanges(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 5
        work.wait()
        dist.broadcast(z, 1)
        dist.barrier()
        return y + z

    x = torch.arange(4.0) + rank
    for compile_ in (lambda what: what, lambda what: torch.compile(what, backend="eager")):
        torch.manual_seed(rank)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
        forward = compile_(model)
        for _ in range(2):
            forward(torch.randn(6, 4)).sum().backward()
        runs.append([compile_(exchanges)(x), *(parameter.grad for parameter in model.parameters())])
    return all(near(first, other) for first, other in zip(*runs, strict=True))


def checkpoint(folder):
    """A sharded network is saved by all ranks, and read into one that is sharded in another way."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model)
    train(model, SAMPLES, dist.get_world_size(), dist.get_rank(), STEPS)
    checkpoints.save({"model": get_model_state_dict(model), "step": STEPS}, checkpoint_id=folder)
    waited = checkpoints.async_save({"model": get_model_state_dict(model)}, checkpoint_id=f"{folder}/later")
    waited.result()
    checks = []
    for place in (folder, f"{folder}/later"):
        again = network()
        for parameter in again.parameters():
            nn.init.zeros_(parameter)
        state = {"model": again.state_dict()}
        checkpoints.load(state, checkpoint_id=place)
        pairs = zip(again.parameters(), model.parameters(), strict=True)
        checks += [torch.equal(own, other.full_tensor()) for own, other in pairs]
    return all(checks)


LIBRARIES = (fully_sharded_data_parallel, zero_redundancy, distributed_tensors, pipeline, compiled)


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What PyTorch imports when training begins: once here instead of on every rank."""
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor  # noqa: F401


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_runs_over_gcl(library):
    assert run_ranks(2, library) == [True, True]


def test_checkpoints_are_saved_and_loaded_over_gcl(tmp_path):
    assert run_ranks(2, checkpoint, str(tmp_path / "saved")) == [True, True]


def spawned(rank, port):
    """A rank that torch.multiprocessing has started."""
    import gcl.torch  # noqa: F401  registers it

    dist.init_process_group("cpu:gcl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    x = torch.full((1000,), rank + 1.0)
    dist.all_reduce(x)
    assert x[-1] == 3.0
    dist.destroy_process_group()


def test_ranks_that_torch_multiprocessing_starts_meet():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(spawned, args=(port,), nprocs=2, start_method="spawn")
