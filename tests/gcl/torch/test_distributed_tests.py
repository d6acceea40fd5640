"""PyTorch's own tests of back ends: those that pass with gloo pass with gcl."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
pytest.importorskip("expecttest", reason="expecttest is not installed; scripts/test --with-torch adds it")

from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import WITH_PYTORCH, warm_python

pytestmark = pytest.mark.torch

#: Tests that pass with gloo and not with gcl -> why.
EXCEPTIONS = {
    "test_sparse_all_reduce_sum": "a sparse all-reduce is refused by name: pass a dense tensor, or use gloo",
}
#: One test of each kind, the fastest.
SAMPLE = (
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_to_all_single_unequal_split_complex",
    "test_monitored_barrier_gloo_subgroup",
    "test_reduce_full_group_product",
    "test_send_recv_any_source_torch_profiler",
)


def outcomes(backend: str, ranks: int, folder: Path, *names: str) -> dict[str, str]:
    """The outcome of each of PyTorch's tests."""
    program, file = PROGRAMS / "gcl" / "torch_distributed_test.py", folder / f"{backend}.json"
    command = [*warm_python(*WITH_PYTORCH), str(program), backend, str(ranks), str(file), *names]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=1500)
    return {name: outcome for name, (outcome, *_) in json.loads(file.read_text()).items()}


def test_a_sample_of_them_passes(tmp_path):
    results = outcomes("gcl", 3, tmp_path, *SAMPLE)
    assert {results[name] for name in SAMPLE} == {"passed"}, results


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_that_pass_with_gloo_pass(ranks, tmp_path):
    ours, theirs = (outcomes(backend, ranks, tmp_path) for backend in ("gcl", "gloo"))
    worse = {name for name, outcome in theirs.items() if outcome == "passed" and ours[name] != "passed"}
    assert worse == set(EXCEPTIONS), worse
    assert sum(outcome == "passed" for outcome in theirs.values()) > 80
