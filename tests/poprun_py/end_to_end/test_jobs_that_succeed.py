"""Jobs that succeed, under the real launcher, with each MPI."""

from __future__ import annotations

import collections
import ctypes
import hashlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from poprun_py.linux import loopback_only
from tests.helpers.mpi_jobs import PROGRAMS
from tests.poprun_py.conftest import BIN, sampled_with_mpi

WORLD_OF_MPI = str(PROGRAMS / "poprun_py/mpi/world_of_mpi.py")

#: Of a large output: long lines, because the test counts them.
LONG_LINE = "x" * 150

TWO = ["--num-instances", "2", "--num-replicas", "4"]


def lines_of(out: bytes, rank: int, stream: str = "stdout") -> list[str]:
    tag = f"[1,{rank}]<{stream}>:"
    return [line.removeprefix(tag) for line in out.decode().splitlines() if line.startswith(tag)]


def test_echo_has_the_output_of_poprun(launch):
    assert launch("echo", "Hello World").finish() == (0, b"[1,0]<stdout>:Hello World\n", b"")


def test_instances_get_their_replica_offsets_and_streams_are_separate(launch, mpi):
    job = launch("--mpi", mpi, *TWO, "sh", "-c", "echo offset $POPDIST_REPLICA_INDEX_OFFSET; echo oops >&2")
    code, out, err = job.finish()
    assert code == 0, err
    assert sorted(out.splitlines()) == [b"[1,0]<stdout>:offset 0", b"[1,1]<stdout>:offset 2"]
    assert sorted(err.splitlines()) == [b"[1,0]<stderr>:oops", b"[1,1]<stderr>:oops"]
    job.assert_nothing_left()


@sampled_with_mpi(count=[2, 8])
def test_one_world_with_the_library_of_the_launcher(launch, mpi, count):
    job = launch("--mpi", mpi, "--num-instances", str(count), sys.executable, WORLD_OF_MPI, "sum")
    status, out, err = job.finish(timeout=250)
    assert status == 0, err
    vendor = "OpenMPI" if "openmpi" in mpi else "MPICH"
    for rank in range(count):
        assert lines_of(out, rank) == [f"{count} {count * (count + 1) // 2} {vendor}"]
    job.assert_nothing_left()


def test_private_variables_of_the_launcher_are_not_passed_on(launch, mpi):
    code, out, _ = launch("--mpi", mpi, "env").finish()
    assert code == 0
    names = {line.partition("=")[0] for line in lines_of(out, 0)}
    assert {name for name in names if name.startswith(("POPRUN_PY", "HWLOC_"))} == set()
    assert {"POPDIST_NUM_TOTAL_REPLICAS", "OMP_NUM_THREADS", "MPI4PY_LIBMPI"} <= names


def test_an_outer_process_manager_does_not_confuse_ours(launch, mpi):
    outer = {"PMI_RANK": "5", "PMI_SIZE": "7", "PMI_FD": "55", "PMIX_RANK": "5", "OMPI_COMM_WORLD_RANK": "5"}
    code, out, err = launch("--mpi", mpi, "--num-instances", "2", "echo", "hi", **outer).finish()
    assert (code, err) == (0, b"")
    assert lines_of(out, 0) == lines_of(out, 1) == ["hi"]


def test_the_program_gets_its_words_as_they_are(launch):
    words = ["--num-instances", "7", "a b", "$HOME", "", "*", "'"]
    code, out, _ = launch("printf", "<%s>\\n", *words).finish()
    assert code == 0
    assert lines_of(out, 0) == [f"<{word}>" for word in words]


def test_stdin_is_passed_to_instance_0(launch, mpi):
    text = b"".join(b"%d\n" % number for number in range(100_000))
    code, out, _ = launch("--mpi", mpi, "--num-instances", "2", "md5sum").finish(text)
    assert code == 0
    assert lines_of(out, 0) == [hashlib.md5(text).hexdigest() + "  -"]
    assert lines_of(out, 1) == [hashlib.md5(b"").hexdigest() + "  -"]


def test_stdin_that_nobody_reads_stops_nothing(launch):
    assert launch("true").finish(b"x" * 1_000_000)[0] == 0


def test_lines_of_many_writers_are_never_mixed(launch, mpi):
    program = str(PROGRAMS / "poprun_py/lines_of_all_lengths.py")
    job = launch("--mpi", mpi, "--num-instances", "4", sys.executable, program)
    code, out, err = job.finish(timeout=250)
    assert code == 0, err
    expected = [f"{n:06d} {'x' * (n % 300)}" for n in range(3000)]
    for rank in range(4):
        assert lines_of(out, rank) == expected
    assert len(out.splitlines()) == 4 * 3000


def test_bytes_and_unfinished_lines_pass_through(launch):
    code, out, _ = launch("printf", "\\377\\000\\n\\nend").finish()
    assert (code, out) == (0, b"[1,0]<stdout>:\xff\x00\n[1,0]<stdout>:\n[1,0]<stdout>:end\n")


def test_a_flood_is_neither_lost_nor_kept_in_memory(launch):
    """60 MB of output: all of it arrives, and the launcher, which takes about 26 MB, does not keep it."""
    job = launch("--num-instances", "2", "sh", "-c", f"yes {LONG_LINE} | head -c 30000000")
    assert job.process.stdout
    job.read_until(r"\]<stdout>:x", 1)
    peak, counts = 0, collections.Counter()
    for number, line in enumerate(job.process.stdout):
        counts[line] += 1
        if number % 50_000 == 0:
            status = Path(f"/proc/{job.process.pid}/status").read_text()
            if match := re.search(r"VmHWM:\s+(\d+)", status):
                peak = max(peak, int(match[1]))
    assert job.process.wait(60) == 0
    assert sum(counts.values()) == 2 * -(-30_000_000 // (len(LONG_LINE) + 1)) - 1
    assert len(counts) == 4  # for each instance, the full line and the one cut by head
    assert 0 < peak < 60_000


def test_output_that_is_not_read_stops_the_program_not_the_launcher(launch):
    job = launch("--grace", "0.2", "yes")
    job.read_until("y", 1)
    job.process.terminate()
    assert job.process.stdout
    job.process.stdout.close()
    job.process.wait(30)
    job.assert_nothing_left()


def test_only_one_instance_is_shown(launch):
    job = launch("--num-instances", "3", "--only-output-from-instance", "1", "sh", "-c", "echo out; echo err >&2")
    assert job.finish() == (0, b"[1,1]<stdout>:out\n", b"[1,1]<stderr>:err\n")


def test_the_topology_is_printed_first_and_untagged(launch):
    code, out, _ = launch(*TWO, "--print-topology=yes", "echo", "hi").finish()
    assert code == 0
    lines = out.decode().splitlines()
    assert lines[0] == " " + "=" * 27
    assert lines[9] == "| replicas  | 0 | 1 | 2 | 3 |"
    assert lines[11].endswith("<stdout>:hi")


def test_log_lines_have_poprun_s_form(launch, mpi):
    code, _, err = launch("--mpi", mpi, "-v", "true").finish()
    assert code == 0
    pattern = r"\d\d:\d\d:\d\d\.\d{3} \d+ POPRUN \[I\] "
    messages = [re.sub(pattern, "", line) for line in err.decode().splitlines() if re.match(pattern, line)]
    assert messages[0].startswith("Running command: '/")
    assert re.match(r"Waiting for mpirun \(PID \d+\)", messages[1])
    assert re.match(r"mpirun \(PID \d+\) terminated with exit code 0", messages[-1])
    assert len(messages) == len(err.splitlines())
    assert b"POPRUN_PY_KEY" not in err


def test_an_instance_that_ends_early_and_well_ends_nothing(launch, mpi):
    script = "test $POPDIST_REPLICA_INDEX_OFFSET = 0 || { sleep 1; echo late; }"
    code, out, err = launch("--mpi", mpi, "--num-instances", "2", "sh", "-c", script).finish()
    assert (code, err) == (0, b"")
    assert lines_of(out, 1) == ["late"]


def test_background_processes_of_a_program_end_with_it(launch, mpi):
    job = launch("--mpi", mpi, "--num-instances", "2", "sh", "-c", "sleep 600 & setsid sleep 600 & echo done")
    code, out, _ = job.finish()
    assert code == 0
    assert lines_of(out, 1) == ["done"]
    job.assert_nothing_left()


_IN_OTHER_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc"]


@pytest.mark.skipif(
    subprocess.run([*_IN_OTHER_PROCESSES, "true"], capture_output=True, check=False).returncode != 0,
    reason="needs a pid namespace",
)
def test_a_launch_that_sees_no_process_of_another_job_leaves_its_files_alone(launch, mpi):
    job = launch("--mpi", mpi, "--num-instances", "2", sys.executable, WORLD_OF_MPI, "wait")
    job.read_until("met", 2)
    files = {path for pid in job.processes() for path in _named_files(pid)}
    assert files
    elsewhere = [*_IN_OTHER_PROCESSES, str(BIN / "poprun-py"), "--mpi", mpi, "true"]
    subprocess.run(elsewhere, check=True, timeout=60)
    assert all(map(os.path.exists, files))
    job.finish(b"\n")
    assert not any(map(os.path.exists, files))


#: They listen at all addresses, which cannot be configured (docs/security.md): a filter drops packets of other hosts.
_PROCESS_MANAGERS = ("mpirun", "prterun", "hydra_pmi_proxy")

#: SO_GET_FILTER: the number of instructions of the filter on a socket.
_FILTER = 26


def test_a_job_on_one_host_listens_on_the_loopback_only(launch, mpi):
    job = launch("--mpi", mpi, "--num-instances", "2", "PASSWORD=hunter2", sys.executable, WORLD_OF_MPI, "wait")
    job.read_until("met", 2)
    processes = [psutil.Process(pid) for pid in job.processes()]
    assert not any("hunter2" in word for process in processes for word in process.cmdline())
    listening = [
        (process.name(), connection.laddr.ip)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and process.name() not in _PROCESS_MANAGERS
    ]
    assert ("poprun-py", "127.0.0.1") in listening
    assert {address for _, address in listening} == {"127.0.0.1"}
    managers = [process for process in processes if process.name() in _PROCESS_MANAGERS]
    filters = [
        _filter(entry) for process in managers for entry in loopback_only.sockets_of(process.pid) if _is_open(entry)
    ]
    assert filters
    assert all(filters)
    assert job.finish(b"\n")[0] == 0


def _is_open(connection: socket.socket) -> bool:
    """Whether a socket listens at an address of an interface other than the loopback."""
    inet = connection.family in (socket.AF_INET, socket.AF_INET6)
    return bool(
        inet
        and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        and not connection.getsockname()[0].startswith("127.")
    )


def _filter(connection: socket.socket) -> int:
    length = ctypes.c_uint32(0)
    call = (connection.fileno(), socket.SOL_SOCKET, _FILTER, None, ctypes.byref(length))
    assert ctypes.CDLL(None, use_errno=True).getsockopt(*call) == 0, os.strerror(ctypes.get_errno())
    return length.value


def _named_files(pid: int) -> set[str]:
    """The files in shared memory and in temporary folders that a process has open or mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text().split()
    opened = [os.path.realpath(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    named = (path for path in (*maps, *opened) if re.match("/dev/shm/|/tmp/(hydra|poprun-py)", path))
    return {path for path in named if os.path.exists(path)}
