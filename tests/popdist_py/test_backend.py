"""Backend: instances that join, subsets of them, and how a job ends after success or failure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import MPICH, OPENMPI, PROGRAMS, Mpi, every_mpi, run_alone, run_job


@every_mpi
def test_joining_meeting_and_leaving(mpi: Mpi, tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/join_meet_leave.py"
    ended = run_job(program, tmp_path, counts=(2, 2, 2), mpi=mpi).succeeded()
    said = [json.loads(text) for text in ended.out]
    assert [instance for instance, _ in said] == [0, 1, 2]
    assert len({tuple(pids) for _, pids in said}) == 1
    assert len(set(said[0][1])) == 3


def test_instances_with_different_numbers_of_replicas_join(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/uneven_replicas.py"
    ended = run_job(program, tmp_path, counts=(3, 1, 2)).succeeded()
    assert ended.out == ["[3, 1, 2] 0\n", "[3, 1, 2] 3\n", "[3, 1, 2] 4\n"]


def test_collectives_inside_execute_on_instances_span_only_those(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/execute_on_instances.py"
    ended = run_job(program, tmp_path, counts=(1, 1, 1, 1)).succeeded()
    first, second, third, fourth = (json.loads(text) for text in ended.out)
    everyone = [0, 1, 2, 3]
    assert first == [[100, 102], None, None, None, None, everyone]
    assert third == [[100, 102], None, None, None, [7], everyone]
    assert second[1] == [[1, 3], None, [2, 6]]
    assert fourth[1] == [[1, 3], [8], [2, 6]]
    assert second[2] is None
    assert fourth[2] == "instances [0] do not take part here; choose from instances [1, 3]"
    assert (
        "this one called allReduce(max) with float64 [], instance 1 called allReduce(min) with float64 []"
        in fourth[3]
    )
    assert second[4:] == fourth[4:] == [None, everyone]


def test_after_an_error_of_the_function_instances_can_communicate(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/function_raises.py"
    assert run_job(program, tmp_path).succeeded().out == ["[0, 1]\n", "raised here [0, 1]\n"]


MISMATCHED = PROGRAMS / "popdist_py/mismatched_mpi.py"


def test_processes_with_separate_worlds_are_reported(tmp_path: Path) -> None:
    """This happens if launcher and library are of different MPIs, which report nothing themselves."""
    program = PROGRAMS / "popdist_py/worlds_of_their_own.py"
    environ = {
        "POPDIST_NUM_TOTAL_REPLICAS": "4",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "2",
    }
    ended = run_alone(program, tmp_path, environ=environ)
    *messages, initialised = ended.stdout.splitlines()
    for who, message in zip(("instance 1 of 2", "one instance of several, with 2 replicas"), messages, strict=True):
        expected = f"this is {who}, but MPI says process 0 of 1: the launcher and the MPI library of this"
        assert message.startswith(expected)
        assert "poprun-py" in message
        assert "MPICH" in message, "the library that was loaded is named"
    assert initialised == "False"


@pytest.mark.openmpi
def test_mpichs_launcher_with_open_mpis_library(tmp_path: Path) -> None:
    if not OPENMPI.mpirun.exists():
        pytest.skip("there is no .venv-openmpi here")
    mixed = replace(MPICH, environ=OPENMPI.environ)
    ended = run_job(MISMATCHED, tmp_path, mpi=mixed)
    for instance, said in enumerate(ended.out):
        assert f"this is instance {instance} of 2, but MPI says process 0 of 1" in said
        assert "Open MPI" in said


def test_init_after_finalize_raises(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/init_after_finalize.py"
    ended = run_job(program, tmp_path).succeeded()
    assert ended.out == ["MPI was finalised and cannot start again; call finalizeBackend() once, at the end\n"] * 2


def ends(program: Path, folder: Path, instance: int, *arguments: str, mpi: Mpi = MPICH) -> tuple[int | None, str]:
    """Exit code and stderr of ``instance``, which must end although another instance would wait for it."""
    ended = run_job(program, folder, *arguments, mpi=mpi, until=instance, timeout=200)
    return ended.codes[instance], ended.err[instance]


LEAVE = PROGRAMS / "popdist_py/leave.py"


@every_mpi
def test_an_instance_that_raises_ends_with_its_traceback(mpi: Mpi, tmp_path: Path) -> None:
    code, said = ends(LEAVE, tmp_path, 1, "raises", "wait", mpi=mpi)
    assert code == 1
    assert "Traceback (most recent call last)" in said
    assert said.rstrip().endswith("ValueError: the data is bad")


@every_mpi
@pytest.mark.parametrize(
    ("leave", "code", "said"),
    [pytest.param("3", 3, "", id="code"), pytest.param("no more data", 1, "no more data\n", id="text")],
)
def test_an_instance_that_exits_ends_with_its_code(
    leave: str, code: int, said: str, mpi: Mpi, tmp_path: Path
) -> None:
    assert ends(LEAVE, tmp_path, 1, leave, "wait", mpi=mpi) == (code, said)


@pytest.mark.parametrize("leave", ["ends", "0", "raises SystemExit"])
def test_an_instance_that_ends_early_is_an_error_where_others_wait(leave: str, tmp_path: Path) -> None:
    """Even if the exit hook cannot know that it failed."""
    code, said = ends(LEAVE, tmp_path, 0, leave, "sum")
    assert code == 1
    assert "BackendError: instance 1 has ended, but instance 0 called allReduce(sum) with float64 []" in said


def test_an_instance_that_outlives_an_early_end_may_continue_alone(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/outlive_an_end.py"
    alone = run_job(program, tmp_path).succeeded().out[0].splitlines()
    expected = "instance 1 has ended, but instance 0 called synchronize(); every instance must make the same calls"
    assert alone == [expected] * 3


def test_mpi_that_the_program_imported_first_does_not_keep_a_failed_instance(tmp_path: Path) -> None:
    """mpi4py would wait for the others in its own exit hook."""
    program = PROGRAMS / "popdist_py/mpi_imported_first.py"
    assert ends(program, tmp_path, 1) == (3, "")
