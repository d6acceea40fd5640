"""A job over two hosts, of which one has AVX-512 and the other has not, trains the weights of one host."""

import json
import sys

import pytest

from tests.golden.catalogue import PROGRAMS, golden_digests
from tests.golden.settings import KERNELS
from tests.helpers.network_namespaces import hosts, needs_hosts
from tests.poprun_py.helpers.several_hosts import Job

NARROW, WIDE = (
    next(setting for setting in KERNELS if name in setting.name) for name in ("x86-64-v3", "skylake-avx512")
)
NAMES = [name for name, program in PROGRAMS.items() if program.spread and not program.missing]
#: Runs a command with the variables of the host: those of the first host before the first comma of three words.
ON_ITS_HOST = 'test "$(hostname)" = "$1" && export $2 || export $3; shift 3; exec "$@"'


def variables(setting):
    return " ".join(f"{name}={value}" for name, value in setting.variables.items())


@needs_hosts
@pytest.mark.parametrize("instances", [2, pytest.param(4, marks=pytest.mark.full)])
def test_hosts_with_and_without_avx_512_train_the_weights_of_one_host(instances, tmp_path):
    if WIDE.obstacle():
        pytest.skip(WIDE.obstacle())
    cache = tmp_path / "executables"
    with hosts(2, tmp_path) as where:
        shell = ["sh", "-c", ON_ITS_HOST, "sh", where.names[0], variables(WIDE), variables(NARROW)]
        argv = ["--host", ",".join(where.names), "--num-instances", str(instances), "--num-replicas", "4"]
        argv += ["--executable-cache-path", str(cache), *shell, sys.executable, "-m", "tests.golden.worker", *NAMES]
        job = Job(where, argv)
        try:
            code, out, err = job.finish(timeout=240)
        finally:
            job.end()
    assert code == 0, err
    results = [json.loads(line[line.index("{") :]) for line in out.splitlines() if '{"program"' in line]
    golden = golden_digests()
    assert len(results) == instances * len(NAMES)
    for result in results:
        assert result.get("digests") == golden[result["program"]], result
    assert len(list(cache.iterdir())) >= 2 * len(NAMES)  # none of them was compiled for the other host
