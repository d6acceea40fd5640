"""Jobs on several hosts: network namespaces with a name, an address and an sshd each; host keys are checked."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.network_namespaces import Hosts, hosts, needs_hosts
from tests.helpers.patience import Patience
from tests.helpers.warm_processes import EMULATOR, warm_python
from tests.poprun_py.conftest import MPIS, OPENMPI, sampled_with_mpi
from tests.poprun_py.helpers.several_hosts import Job, kill_one, processes_on, role_of

HELLO = 'echo "$POPDIST_REPLICA_INDEX_OFFSET $POPDIST_LOCAL_INSTANCE_INDEX $(hostname) $PWD $FLAVOUR"'


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts for the whole module; tests that break a link restore it."""
    with hosts(4, tmp_path_factory.mktemp("hosts")) as where:
        yield where


@pytest.fixture
def run(four: Hosts) -> Iterator[Callable[..., Job]]:
    """``run(count, *arguments, **environment)`` starts a job on the first ``count`` hosts."""
    jobs = []

    def start(count: int, *arguments: str, **environment: str) -> Job:
        jobs.append(Job(four, ["--host", ",".join(four.names[:count]), *arguments], environment))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


@needs_hosts
@pytest.mark.parametrize("count", [2, 4])
def test_every_instance_says_hello_from_its_host(four, run, mpi, count, tmp_path):
    job = run(count, "--mpi", mpi, "--num-instances", str(2 * count), "sh", "-c", HELLO, FLAVOUR="mint tea")
    code, out, err = job.finish()
    assert (code, err) == (0, "")
    expected = {
        f"[1,{rank}]<stdout>:{rank} {rank % 2} {four.names[rank // 2]} {Path.cwd()} mint tea"
        for rank in range(2 * count)
    }
    assert set(out.splitlines()) == expected
    assert not job.left(within=60)


@needs_hosts
def test_shells_of_other_hosts_read_no_part_of_the_temporary_folder(four, run, mpi, tmp_path):
    odd = tmp_path / 'a"b$(exit)`exit`'
    odd.mkdir()
    job = run(2, "--mpi", mpi, "-v", "--num-instances", "2", "hostname", TMPDIR=str(odd))
    code, out, err = job.finish()
    assert code == 0, err
    assert set(out.splitlines()) == {f"[1,{rank}]<stdout>:{four.names[rank]}" for rank in range(2)}
    assert f"The job has no folder below {str(odd)!r}: shells of other hosts" in err
    assert not list(odd.iterdir())
    assert not job.left(within=60)


@needs_hosts
def test_hydra_writes_no_file_of_the_topology_on_any_host(four, run):
    program = PROGRAMS / "poprun_py/topology_of_hydra.py"
    code, out, err = run(2, "--mpi", MPIS["mpich"], "--num-instances", "2", sys.executable, program).finish()
    assert (code, err) == (0, "")
    assert set(out.splitlines()) == {f"[1,{rank}]<stdout>:{four.names[rank]} '' None" for rank in range(2)}


@needs_hosts
def test_no_port_of_a_job_on_one_host_answers_another_host(four, mpi):
    argv = [
        "--mpi",
        mpi,
        "--num-instances",
        "2",
        sys.executable,
        "-m",
        "tests.programs.poprun_py.ports.listening_ports",
    ]
    job = Job(four, argv, {"UCX_TLS": "all"}, stdin=subprocess.PIPE)

    def answers(address: str, host: int) -> list[str]:
        argv = four.command(
            host, [sys.executable, str(PROGRAMS / "poprun_py/ports/answering_ports.py"), address, *ports]
        )
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=100).stdout.split()

    try:
        ports = [word for word in job.wait_for(b"ports", 1)[0].decode().split()[1:] if word != "22"]
        assert answers("10.77.0.1", host=1) == []
        assert len(answers("127.0.0.1", host=0)) > 1  # the launcher, and what belongs to the MPI
        job.process.stdin.write(b"\n")
        job.process.stdin.close()
        job.process.stdin = None
        assert job.finish()[0] == 0
    finally:
        job.end()


@needs_hosts
def test_a_subnet_is_used_by_its_name_on_each_host(four, run):
    show = "echo $UCX_NET_DEVICES $GLOO_SOCKET_IFNAME"
    for subnet in ("v0", "10.77.0.0/24"):
        code, out, err = run(2, "--host-subnet", subnet, "--num-instances", "2", "sh", "-c", show).finish()
        assert (code, err) == (0, "")
        assert sorted(out.splitlines()) == ["[1,0]<stdout>:v0 v0", "[1,1]<stdout>:v1 v1"]


@needs_hosts
def test_training_over_four_hosts_gives_the_weights_of_one(four, run, tmp_path):
    """Bitwise, and the gradients really crossed the links."""
    arguments = [*warm_python(*EMULATOR), str(ROOT / "examples/digits.py"), "--epochs", "2", "--weights-out"]
    before = four.sent_bytes(3)
    spread = run(4, "--num-instances", "4", "--num-replicas", "4", *arguments, str(tmp_path / "four.npz"))
    code, _, err = spread.finish(timeout=180)
    assert code == 0, err
    assert four.sent_bytes(3) - before > 100_000
    alone = run(1, "--num-instances", "1", "--num-replicas", "4", *arguments, str(tmp_path / "one.npz"))
    code, _, err = alone.finish(timeout=180)
    assert code == 0, err
    with np.load(tmp_path / "four.npz") as first, np.load(tmp_path / "one.npz") as second:
        assert set(first) == set(second)
        for name in first:
            assert first[name].tobytes() == second[name].tobytes(), name


@needs_hosts
def test_exit_codes_and_signals_come_from_the_host_where_they_were(four, run, mpi):
    program = "test $POPDIST_REPLICA_INDEX_OFFSET = 1 && {}; sleep 60"
    for what, code, said in (
        ("exit 7", 7, "exited with code 7"),
        ("kill -SEGV $$", 128 + signal.SIGSEGV, "was killed by signal 11 (SIGSEGV)"),
    ):
        job = run(2, "--mpi", mpi, "--num-instances", "2", "sh", "-c", program.format(what))
        ended, _, err = job.finish()
        assert ended == code
        assert "poprun-py: instance 1 (pid " in err
        assert f" on {four.names[1]}, replica 1) {said}" in err
        assert not job.left(within=60)


@needs_hosts
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_an_instance_that_was_killed_is_blamed_though_its_peers_crash_at_once_on_both_hosts(four, run, mpi, victim):
    program = str(PROGRAMS / "poprun_py/crashing_without_peers.py")
    job = run(2, "--mpi", mpi, "--num-instances", "4", sys.executable, program)
    ready = b"".join(job.wait_for(b"READY", 4)).decode()
    pids = {int(rank): int(pid) for rank, pid in re.findall(r"READY (\d) (\d+)", ready)}
    os.kill(pids[victim], signal.SIGKILL)
    code, _, err = job.finish()
    where = f"instance {victim} (pid {pids[victim]} on {four.names[victim // 2]}, replica {victim})"
    assert f"poprun-py: {where} was killed by signal 9 (SIGKILL)" in err
    assert code == 128 + signal.SIGKILL
    assert not job.left(within=60)


@needs_hosts
def test_an_interrupt_reaches_the_programs_on_all_hosts(run, mpi):
    program = 'trap "echo bye; exit 0" INT; echo ready; sleep 60 & wait'
    job = run(2, "--mpi", mpi, "--num-instances", "2", "sh", "-c", program)
    job.wait_for(b"ready", 2)
    job.process.send_signal(signal.SIGINT)
    code, out, _ = job.finish()
    assert code == 128 + signal.SIGINT
    assert out.count("bye") == 2
    assert not job.left(within=60)


@needs_hosts
def test_an_interface_that_there_is_not_is_refused(run):
    code, _, err = run(2, "--num-instances", "2", "--host-subnet", "eth77", "true").finish()
    assert code == 2
    assert "v0 (10.77.0.0/24)" in err


@needs_hosts
def test_a_host_that_cannot_be_reached_is_named(four):
    job = Job(four, ["--host", f"{four.names[0]},nowhere.invalid", "--num-instances", "2", "true"])
    code, _, err = job.finish()
    assert code != 0
    assert "nowhere.invalid" in err
    assert not job.left(within=60)


@needs_hosts
def test_unplugging_a_host_ends_the_job_with_that_host_named(four, run):
    """On both sides of the cut, with both MPIs at once; SILENCE is 8 s, and both sides check every second or two."""
    mpis = [mpi for name, mpi in MPIS.items() if name == "mpich" or OPENMPI.exists()]
    jobs = [run(2, "--mpi", mpi, "--num-instances", "2", "sh", "-c", "echo ready; sleep 120") for mpi in mpis]
    for job in jobs:
        job.wait_for(b"ready", 2)
    link = ["ip", "-n", four.names[1], "link", "set", "v1"]
    subprocess.run([*link, "down"], check=True)
    try:
        for job in jobs:
            code, _, err = job.finish()
            assert code == 128 + signal.SIGKILL
            assert f"on {four.names[1]}" in err
            assert "its host is down or unreachable" in err
        assert not jobs[0].left(within=60, sessions=False)  # those of sshd wait for their connections much longer
    finally:
        subprocess.run([*link, "up"], check=True)


@needs_hosts
@sampled_with_mpi(role=["launcher", "mpirun", "ssh", "proxy", "supervisor", "program"])
def test_a_death_leaves_no_process_on_any_host(four, mpi, role):
    """One of each; ``python -m tests.poprun_py.helpers.several_hosts --count 50`` kills at random."""
    where = Hosts(four.names[:2], four.ssh)
    faults = [fault for fault in kill_one(where, mpi, role, random.Random(role)).faults if "took" not in fault]
    assert not faults


def _is_connected(pid: int) -> bool:
    """Whether the host of a process has a connection that is not its sshd's."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(words[3] == "01" and not words[1].endswith(":0016") for words in map(str.split, lines))


@needs_hosts
@pytest.mark.openmpi
@pytest.mark.skipif(not OPENMPI.exists(), reason="there is no .venv-openmpi here")
def test_a_daemon_that_mpirun_has_never_answered_ends_with_the_job(four, run):
    """Open MPI's daemon waits forever if its mpirun is killed between the connection and the answer."""
    job = run(2, "--mpi", MPIS["openmpi"], "--num-instances", "2", "sleep", "60")

    def pids(role: str) -> list[int]:
        return [pid for pid, words in processes_on(four).items() if role_of(words) == role]

    patience = Patience(30)
    while not pids("ssh"):
        assert not patience.is_over
        time.sleep(0.001)
    (mpirun,) = pids("mpirun")
    os.kill(mpirun, signal.SIGSTOP)
    while not any(map(_is_connected, pids("proxy"))):
        assert not patience.is_over
        time.sleep(0.01)
    time.sleep(0.2)  # let it send its message
    os.kill(mpirun, signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 128 + signal.SIGKILL
    assert f"mpirun (pid {mpirun}) was killed by signal 9" in err
    assert not job.left(within=20)
