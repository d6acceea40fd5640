"""connect: which processes can connect, over which transports, and the life of a communicator, between processes."""

import json
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_job


def test_contradictions_are_the_same_error_on_every_rank(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/connect/misfits.py"
    ended = run_job(program, tmp_path, counts=(1, 1, 1)).succeeded()
    offset, disagree, total, inprocess, transport, group, fine = ended.out[0].splitlines()
    assert offset.startswith("ArgumentError: rank 1 says its first replica is 0, but ranks before it own 1")
    assert disagree.startswith("ArgumentError: rank 1 says there are 4 replicas, rank 0 says 3")
    assert total.startswith("ArgumentError: 3 ranks own 3 replicas in total, but global_replicas is 8")
    assert inprocess.startswith(
        "ArgumentError: transport 'inprocess' works in one process, but 3 processes take part"
    )
    assert transport.startswith("ArgumentError: rank 1 connects with transport 'mpi', groups of 3")
    assert "groups of 1 with stride 1" in group
    assert fine == "no error"
    assert ended.out[1] == ended.out[2] == ended.out[0]


def test_connecting_before_init_names_init(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/connect/before_init.py"
    for said in run_job(program, tmp_path).succeeded().out:
        others, alone = said.splitlines()
        assert "call popdist_py.init() first" in others
        assert alone == "inprocess", "replicas of one process need nobody"


def test_without_numbers_it_joins_all_processes_of_the_job(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/connect/whole_job.py"
    ended = run_job(program, tmp_path, counts=(1, 2)).succeeded()
    for said, joined in zip(ended.out, ("1 0 3 shared_memory", "2 1 3 shared_memory"), strict=True):
        before, *after = said.splitlines()
        assert "call popdist_py.init() first" in before
        assert after == [joined, "2"]


def test_two_communicators_side_by_side_in_two_threads(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/connect/two_threads.py"
    assert run_job(program, tmp_path).succeeded().out == ["as each alone\n"] * 2


def test_a_forked_child_that_ends_does_not_take_its_parent_along(tmp_path: Path) -> None:
    """Only the rank itself notifies the others when it ends, not its forked child."""
    program = PROGRAMS / "gcl/connect/child_ends.py"
    assert run_job(program, tmp_path).succeeded().out == ["[[2.0, 2.0, 2.0]]\n"] * 2


def test_memory_has_no_name_in_any_folder_and_is_freed_with_its_communicator(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/connect/unnamed_memory.py"
    for said in run_job(program, tmp_path).succeeded().out:
        during, after = json.loads(said)
        memories = {name.rpartition("-")[0] for name in during if "gcl-" in name}
        assert memories == {"/memfd:gcl-control", "/memfd:gcl-segment"}
        assert not [name for name in after if "gcl-" in name]
        assert not [name for name in during if name.startswith("/dev/shm/") and Path(name).exists()]
