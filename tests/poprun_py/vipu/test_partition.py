"""Emulated V-IPU: which partition a job gets, and the file in which partitions are kept."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poprun_py.cli import main
from poprun_py.errors import PoprunError, UsageError, VipuBusyError
from poprun_py.linux.processes import start_ticks
from poprun_py.options.parser import parse
from poprun_py.vipu.partition import (
    Partition,
    PartitionRequest,
    PartitionUser,
    Server,
    assign_partition,
    partition_request,
)
from poprun_py.vipu.partition_file import PartitionFile, partition_file
from tests.helpers.mpi_jobs import PROGRAMS

SERVER = Server("localhost", 8090, 5.0)
GONE = PartitionUser(2**22 + 1, 1, os.uname().nodename)
ELSEWHERE = replace(GONE, host="another-host")
HERE = "localhost:8090"


def wanted(line: str, **environ: str) -> PartitionRequest:
    request = partition_request(parse([*line.split(), "x"]), environ)
    assert request
    return request


def asks(name: str | None = "p", ipus: int = 4, **more: object) -> PartitionRequest:
    return PartitionRequest(SERVER, name, ipus, **more)


@pytest.fixture
def file(tmp_path):
    warnings: list[str] = []
    partitions = PartitionFile(str(tmp_path / "poprun-py/partitions.json"), warnings.append)
    yield partitions
    assert warnings == []


def names(file: PartitionFile) -> dict[str, int]:
    try:
        with open(file.path) as stream:
            return {entry["name"]: entry["ipus"] for entry in json.load(stream)["partitions"]}
    except FileNotFoundError:
        return {}


# -- what is wanted --------------------------------------------------------------------------------------


def test_a_job_that_asks_for_none_needs_no_partition():
    assert partition_request(parse(["--num-replicas=4", "x"]), {"IPUOF_VIPU_API_HOST": "h"}) is None


def test_the_environment_stands_in_for_options():
    environ = {"IPUOF_VIPU_API_PARTITION_ID": "p", "IPUOF_VIPU_API_HOST": "h", "IPUOF_VIPU_API_PORT": "1"}
    request = wanted("--num-replicas=4 --ipus-per-replica=2", **environ)
    assert (request.name, request.server.address, request.server.timeout, request.ipus) == ("p", "h:1", 120.0, 8)
    request = wanted(
        "--vipu-partition=q --vipu-server-host=g --vipu-server-port=2 --vipu-server-timeout=7", **environ
    )
    assert (request.name, request.server.address, request.server.timeout) == ("q", "g:2", 7.0)


def test_wrong_variables_are_named_together():
    with pytest.raises(UsageError) as caught:
        wanted("--vipu-partition=p", IPUOF_VIPU_API_PORT="http", IPUOF_VIPU_API_TIMEOUT="soon")
    assert [line.partition(":")[0] for line in caught.value.lines] == [
        "IPUOF_VIPU_API_PORT=http",
        "IPUOF_VIPU_API_TIMEOUT=soon",
    ]


def test_cluster_is_the_older_name_of_allocation():
    assert wanted("--vipu-cluster=c").allocation == wanted("--vipu-allocation=c").allocation == "c"


# -- what happens ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ipus", "size"), [(1, 1), (2, 2), (3, 4), (12, 16), (16, 16), (65, 128)])
def test_a_partition_has_a_power_of_two(ipus, size):
    decision = assign_partition(asks(ipus=ipus), [])
    assert (decision.action, decision.partition.ipus) == ("created", size)


def test_a_partition_that_is_large_enough_is_used():
    there = Partition("p", HERE, 16)
    assert assign_partition(asks(ipus=16), [there]).partition == there
    assert assign_partition(asks(ipus=16, update=True), [there]).action == "used"


def test_a_partition_that_is_too_small_is_recreated_only_on_request():
    with pytest.raises(UsageError, match=r"8 IPUs.*4.*--update-partition yes"):
        assign_partition(asks(ipus=8), [Partition("p", HERE, 4)])
    decision = assign_partition(asks(ipus=8, update=True), [Partition("p", HERE, 4)])
    assert (decision.action, decision.partition.ipus) == ("recreated", 8)


def test_a_partition_in_use_is_neither_reset_nor_recreated():
    busy = Partition("p", HERE, 4, jobs=(PartitionUser(17, 1, "h"),))
    for request_ in (asks(ipus=8, update=True), asks(reset=True)):
        with pytest.raises(VipuBusyError, match=r"PID 17 on h"):
            assign_partition(request_, [busy])
    assert assign_partition(asks(), [busy]).action == "used"


def test_without_a_name_the_only_one_is_taken():
    here, other, elsewhere = Partition("a", HERE, 4), Partition("b", HERE, 4), Partition("c", "h:1", 4)
    assert assign_partition(asks(None), [here, elsewhere]).partition == here
    assert assign_partition(asks(None), [elsewhere]).action == "created"
    with pytest.raises(UsageError, match="a, b"):
        assign_partition(asks(None), [here, other])


def test_partitions_that_go_with_other_jobs_are_not_taken():
    """Two jobs without named partitions at the same time: each has its own."""
    others = [Partition("poprun", HERE, 4, removable=True), Partition("poprun-2", HERE, 4, removable=True)]
    decision = assign_partition(asks(None, ipus=8), others)
    assert (decision.action, decision.partition.name) == ("created", "poprun-3")
    assert assign_partition(asks(None), [*others, Partition("kept", HERE, 4)]).partition.name == "kept"


# -- the file --------------------------------------------------------------------------------------------


def test_a_partition_that_was_created_is_removed_at_the_end(file):
    with file.held(asks()):
        assert names(file) == {"p": 4}
    assert names(file) == {}


def test_a_partition_is_kept_on_request(file):
    with file.held(asks(remove=False)):
        pass
    with file.held(asks(ipus=8, update=True)) as decision:
        assert decision.action == "recreated"
    assert names(file) == {"p": 8}
    with file.held(asks(reset=True)) as decision:
        assert (decision.action, decision.partition.resets) == ("reset", 1)


def test_a_partition_is_removed_with_the_last_job_that_uses_it(file):
    with file.held(asks()):
        child = [sys.executable, str(PROGRAMS / "poprun_py/uses_partition.py"), file.path]
        done = subprocess.run(child, capture_output=True, text=True, timeout=250, check=True)
        assert done.stdout == "used\n"
        assert names(file) == {"p": 4}
    assert names(file) == {}


def test_jobs_that_were_killed_leave_nothing_behind(file):
    with file.held(asks("other", remove=False)):
        pass
    stale = [Partition("p", HERE, 4, removable=True, jobs=(GONE,)), Partition("q", HERE, 4, jobs=(GONE,))]
    file.write(stale)
    with file.held(asks(None, ipus=8, update=True)) as decision:
        assert (decision.partition.name, decision.action, decision.only_one) == ("q", "recreated", True)
    assert names(file) == {"q": 8}


def test_a_preview_writes_nothing(file, tmp_path):
    assert file.preview(asks()).action == "created"
    assert list(tmp_path.iterdir()) == []


def test_nobody_else_can_read_it(file):
    with file.held(asks()):
        assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(file.path + ".lock").st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(file.path)).st_mode) == 0o700


#: A partition of infinitely many IPUs, which Python's JSON can express.
INFINITE = '{"partitions": [{"name": "p", "server": "s", "ipus": Infinity, "allocation": null, "jobs": []}]}'


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"partitions": [{"name": "p"}]}', '{"partitions": 3}', "\x00\xff", "[" * 100_000, INFINITE],
)
def test_a_damaged_file_is_reported_and_replaced(tmp_path, text):
    path = tmp_path / "partitions.json"
    path.write_bytes(text.encode("latin-1"))
    warnings: list[str] = []
    file = PartitionFile(str(path), warnings.append)
    with file.held(asks()):
        assert names(file) == {"p": 4}
    assert len(warnings) == 1
    assert f"{path} is damaged" in warnings[0]


def test_a_pipe_in_place_of_the_file_is_reported_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "partitions.json")
    with pytest.raises(PoprunError, match=r"partitions\.json cannot be used"):
        PartitionFile(str(tmp_path / "partitions.json"), print).preview(asks())


def test_jobs_wait_for_each_other_and_none_is_lost(file):
    """Eight at once, each with its own partition: all exist while all are held."""
    together = threading.Barrier(8, timeout=250)

    def hold(number: int) -> int:
        with file.held(asks(f"p{number}")):
            together.wait()
            count = len(names(file))
            together.wait()
            return count

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(hold, range(8))) == [8] * 8
    assert names(file) == {}


def test_a_lock_that_is_held_too_long_is_reported(file, tmp_path):
    os.makedirs(tmp_path / "poprun-py")
    impatient = replace(asks(), server=replace(SERVER, timeout=0.1))
    with open(file.path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(VipuBusyError, match=r"0.1 s.*lock"):
            file.held(impatient).__enter__()


def test_a_partition_in_use_is_tried_again(file, monkeypatch):
    """The other job ends between two attempts."""
    me = PartitionUser(os.getppid(), start_ticks(os.getppid()), os.uname().nodename)
    os.makedirs(os.path.dirname(file.path))
    file.write([Partition("p", HERE, 4, jobs=(me,))])
    with pytest.raises(VipuBusyError):
        file.held(asks(ipus=8, update=True)).__enter__()
    monkeypatch.setattr("time.sleep", lambda _: file.write([Partition("p", HERE, 4)]))
    with file.held(asks(ipus=8, update=True, attempts=2)) as decision:
        assert decision.partition.ipus == 8


def test_jobs_of_another_host_are_not_taken_for_dead(file):
    os.makedirs(os.path.dirname(file.path))
    file.write([Partition("p", HERE, 4, removable=True, jobs=(GONE, ELSEWHERE))])
    with pytest.raises(VipuBusyError, match=rf"another job uses it \(PID {ELSEWHERE.pid} on another-host\)"):
        file.held(asks(ipus=8, update=True)).__enter__()
    with file.held(asks()):
        pass
    assert [job for partition in file.read() for job in partition.jobs] == [ELSEWHERE]


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "state").write_text("a file")
    file = partition_file({"XDG_STATE_HOME": str(tmp_path / "state")}, print)
    with pytest.raises(PoprunError, match=r"Not a directory.*XDG_STATE_HOME"):
        file.held(asks()).__enter__()


def test_a_user_without_a_home_gets_no_folder_that_is_called_so(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(PoprunError, match=r"no home.*XDG_STATE_HOME"):
        partition_file({}, print)
    assert partition_file({"XDG_STATE_HOME": str(tmp_path)}, print).path.startswith(str(tmp_path))


@given(
    st.lists(
        st.builds(
            Partition, st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.just(HERE), st.integers(1)
        )
    )
)
def test_any_partition_survives_the_file(tmp_path_factory, partitions):
    file = PartitionFile(str(tmp_path_factory.mktemp("state") / "p.json"), print)
    file.write(partitions)
    assert file.read() == partitions


# -- the whole -------------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("IPU_EMU_SYSTEM", raising=False)
    return PartitionFile(str(tmp_path / "state/poprun-py/partitions.json"), print)


def test_instances_get_the_variables_of_their_partition(launch, state, tmp_path):
    arguments = ("--num-instances=2", "--num-replicas=8", "--vipu-partition=pod8", "--remove-partition=no", "-vv")
    job = launch(
        *arguments, "sh", "-c", "env | grep -E 'IPUOF|POPLAR_TARGET'", XDG_STATE_HOME=str(tmp_path / "state")
    )
    code, out, err = job.finish()
    assert code == 0, err
    assert b"[1,0]<stdout>:IPUOF_VIPU_API_PARTITION_ID=pod8\n" in out
    assert b"[1,1]<stdout>:IPUOF_VIPU_API_GCD_ID=1\n" in out
    assert b'"instanceSize":"4"' in out
    assert b"POPRUN [I] Partition pod8 was created, with 8 IPUs" in err
    assert names(state) == {"pod8": 8}


def test_variables_set_for_the_instances_are_kept(capsys, state):
    line = [
        "--dry-run",
        "--format=json",
        "--vipu-partition=p",
        "--mpi-local-args=-x IPUOF_VIPU_API_TIMEOUT=600",
        "true",
    ]
    assert main(line) == 0
    environment = json.loads(capsys.readouterr().out)["instances"][0]["environment"]
    assert environment["IPUOF_VIPU_API_TIMEOUT"] == "600"
    assert environment["IPUOF_VIPU_API_PARTITION_ID"] == "p"


def test_the_size_of_the_pod_limits_a_job(capsys, monkeypatch, state):
    monkeypatch.setenv("IPU_EMU_SYSTEM", "pod16")
    assert main(["--dry-run", "--num-replicas=16", "true"]) == 0
    capsys.readouterr()
    assert main(["--dry-run", "--num-replicas=8", "--ipus-per-replica=4", "true"]) == 2
    assert capsys.readouterr().err == (
        "poprun-py: --num-replicas 8 --ipus-per-replica 4: 8 replicas of 4 IPUs need 32 IPUs, but "
        "IPU_EMU_SYSTEM=pod16 has 16; use at most 4 replicas or a larger system\n"
    )
    monkeypatch.setenv("IPU_EMU_SYSTEM", "pod17")
    assert main(["--dry-run", "true"]) == 2
    assert "IPU_EMU_SYSTEM=pod17: there is no such system; use pod4, pod16" in capsys.readouterr().err
