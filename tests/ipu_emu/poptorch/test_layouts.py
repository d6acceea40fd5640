"""Layouts: stages, replicas and instances change no bit of the weights."""

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS, ROOT  # noqa: E402
from tests.helpers.warm_processes import PYTORCH_FACES, warm_python  # noqa: E402

pytestmark = pytest.mark.torch


class Model(nn.Module):
    def __init__(self, *, blocks):
        super().__init__()
        self.layers, self.drop = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)]), nn.Dropout(0.2)
        for number in (1, 2, 3) if blocks else ():
            poptorch.BeginBlock(self.layers[number], f"b{number}", ipu_id=number)

    def forward(self, x, target):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return F.mse_loss(self.drop(x), target)


def trained(strategy=None, *, blocks=True, locations=None):
    torch.manual_seed(0)
    module = Model(blocks=blocks)
    options = poptorch.Options().randomSeed(3)
    options.Training.gradientAccumulation(8)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    if locations is not None:
        options.TensorLocations.setOptimizerLocation(locations)
    model = poptorch.trainingModel(module, options, poptorch.optim.AdamW(module.parameters(), lr=0.01))
    source = torch.Generator().manual_seed(1)
    for _ in range(3):
        model(torch.randn(16, 6, generator=source), torch.randn(16, 6, generator=source))
    return module.state_dict()


AUTO, Phase, Stage = poptorch.AutoStage, poptorch.Phase, poptorch.Stage
NAMES = ("b1", "b2", "b3")


def staged(*ipus):
    """A stage on each of these IPUs, for one block each; the last one has the blocks that remain."""
    last = len(ipus) - 1
    return [Stage(*(NAMES[n:] if n == last else NAMES[n : n + 1])).ipu(ipu) for n, ipu in enumerate(ipus)]


def serial():
    return poptorch.SerialPhasedExecution(*(Phase(name) for name in NAMES))


def parallel():
    return poptorch.ParallelPhasedExecution(*(Phase(stage) for stage in staged(0, 1, 0)))


STRATEGIES = {
    "pipeline of a stage per block": lambda: poptorch.PipelinedExecution(AUTO.AutoIncrement),
    "pipeline of a stage per IPU": lambda: poptorch.PipelinedExecution(AUTO.SameAsIpu),
    "pipeline of two stages": lambda: poptorch.PipelinedExecution(*staged(0, 1)),
    "pipeline on one IPU": lambda: poptorch.PipelinedExecution(*staged(0)),
    "pipeline that comes back to an IPU": lambda: poptorch.PipelinedExecution(*staged(0, 1, 0)),
    "shards": lambda: poptorch.ShardedExecution(AUTO.SameAsIpu),
    "shards that come back": lambda: poptorch.ShardedExecution(*staged(1, 0, 1)),
    "serial phases": serial,
    "serial phases with own backward phases": lambda: serial().useSeparateBackwardPhase(True),
    "parallel phases": parallel,
    "parallel phases off chip": lambda: parallel().sendTensorsOffChipAfterFwd(True),
} | {
    f"serial phases, {liveness.name}": lambda liveness=liveness: serial().setTensorsLiveness(liveness)
    for liveness in poptorch.Liveness
}


@pytest.fixture(scope="module")
def expected():
    """The weights without blocks."""
    return trained(blocks=False)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_schedules_and_mappings_change_no_bit(strategy, expected):
    weights = trained(strategy())
    assert all(torch.equal(value, weights[id]) for id, value in expected.items())


@pytest.mark.parametrize("ipus", [(1, 1, 1), (0, 0, 0)])
def test_a_phase_on_the_wrong_ipus_is_refused(ipus):
    strategy = poptorch.ParallelPhasedExecution(*(Phase(stage) for stage in staged(*ipus)))
    with pytest.raises(poptorch.Error, match=r"even phases must be on even IPUs and odd ones on odd"):
        trained(strategy)


def test_locations_change_no_bit(expected):
    settings = poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(0)
    weights = trained(blocks=False, locations=settings)
    assert all(torch.equal(value, weights[id]) for id, value in expected.items())


def test_a_pipeline_needs_enough_micro_batches():
    model = Model(blocks=True)
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(7\).*additional 3 stages"):
        poptorch.trainingModel(model)(torch.ones(1, 6), torch.ones(1, 6))


def test_an_op_after_a_block_has_ended_is_refused():
    class Ended(nn.Module):
        def forward(self, x):
            with poptorch.Block(ipu_id=0):
                x = x + 1
            return x * 2

    with pytest.raises(poptorch.Error, match="No active Block"):
        poptorch.inferenceModel(Ended())(torch.ones(1))


def test_instances_and_replicas_change_no_bit(full):
    """In one instance, and in two of two replicas each; four processes of PyTorch only with ``--full``."""
    import subprocess

    texts, program = set(), str(PROGRAMS / "poptorch/dropout_training.py")
    for instances in (1, 2, 4) if full else (1, 2):
        command = [
            *(sys.executable, "-m", "poprun_py", "--num-instances", str(instances), "--num-replicas", "4"),
            *(*warm_python(*PYTORCH_FACES), "-m", "ipu_emu.compat", program),
        ]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
        texts |= {line.split("weights ")[1] for line in process.stdout.splitlines() if "weights " in line}
    assert len(texts) == 1
