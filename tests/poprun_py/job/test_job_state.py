"""Job state: the launcher's orders and the instance that it blames, event by event, without processes."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from poprun_py.job.deadlines import StartupMonitor
from poprun_py.job.failure import InstanceEnd, first_failure, signal_name
from poprun_py.job.job_state import JobState
from poprun_py.linux import event_sources
from poprun_py.linux.event_sources import Timers
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import plan
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.wire import messages
from poprun_py.wire.messages import LAUNCHER, MPI, OWN

Notice = messages.Lost | messages.Leaving


class Stage:
    """A job of ``count`` instances, and all messages to them."""

    def __init__(self, count: int, **changes: object) -> None:
        options = parse(["--num-instances", str(count), "--num-replicas", str(2 * count), "prog", "arg"])
        launch_plan = plan(options, machine=Machine(), installation=MpiInstallation("mpich", "m"), executable="/p")
        self.plan = replace(launch_plan, **changes)
        self.sent: list[tuple[int, messages.Message]] = []
        self.job = JobState(
            self.plan, since=1.0, has_input=True, send=lambda rank, what: self.sent.append((rank, what))
        )
        self.count = count

    def start(self) -> Stage:
        for rank in range(self.count):
            assert self.job.expects(rank)
            self.job.hello(rank, 100 + rank)
            self.job.started(rank, 200 + rank)
        self.sent.clear()
        return self

    def end(self, rank: int, status: int, cause: str = OWN, at: float = 0.0, notice: Notice | None = None) -> None:
        if notice:
            self.job.noticed(rank, notice)
        self.job.exited(rank, messages.Exited(status, cause, at))
        self.job.gone(rank)

    def orders(self, kind: type) -> list[tuple[int, messages.Message]]:
        return [(rank, message) for rank, message in self.sent if isinstance(message, kind)]


def test_each_supervisor_gets_its_start_message_as_soon_as_it_reports():
    stage = Stage(2)
    assert stage.job.missing == [0, 1]
    stage.job.hello(1, 11)
    assert stage.job.missing == [0]
    [(rank, start)] = stage.sent
    assert rank == 1
    assert isinstance(start, messages.Start)
    assert start.argv == ["prog", "arg"]
    assert start.environment["POPDIST_REPLICA_INDEX_OFFSET"] == "2"
    assert not start.has_input
    stage.job.hello(0, 10)
    assert stage.orders(messages.Start)[1][1].has_input


LOST = messages.Orphaned(91, 1.0)


@pytest.mark.parametrize("when", ["first", "after mpirun", "last"])
def test_an_instance_whose_supervisor_lost_its_parent_is_blamed_for_all_that_follows(when):
    stage = Stage(3).start()
    events = [
        lambda: stage.job.mpirun_ended(77, 9),
        lambda: stage.end(0, -11, at=0.5),
        lambda: stage.end(2, -15, MPI),
    ]
    events.insert(["first", "after mpirun", "", "last"].index(when), lambda: stage.job.orphaned(1, LOST))
    for event in events:
        event()
    stage.end(1, -15, MPI)
    stage.job.mpirun_ended(77, 9)
    lost = (
        "instance 1 (pid 201 on localhost, replicas 2-3) was lost: the parent of its supervisor (pid 91) was killed"
    )
    assert (str(stage.job.failure), stage.job.why, stage.job.exit_code) == (lost, "", 137)


def test_no_instance_is_blamed_if_several_supervisors_lost_their_parents():
    stage = Stage(2).start()
    for rank in (0, 1):
        stage.job.orphaned(rank, LOST)
        stage.end(rank, -15, LAUNCHER)
    stage.job.mpirun_ended(77, 9)
    assert stage.job.failure is None
    assert stage.job.why.startswith("mpirun (pid 77) exited with code 9")


@pytest.mark.parametrize("rank", [-1, 2, 10**9])
def test_ranks_that_do_not_exist_are_refused(rank):
    assert not Stage(2).job.expects(rank)


def test_a_rank_is_taken_once():
    stage = Stage(2).start()
    assert not stage.job.expects(1)


def test_supervisors_may_leave_when_the_last_instance_is_gone():
    stage = Stage(2).start()
    stage.end(0, 0)
    assert not stage.job.all_gone
    assert stage.sent == []
    stage.end(1, 0)
    assert stage.sent == [(0, messages.Leave()), (1, messages.Leave())]
    stage.job.mpirun_ended(1, 0)
    assert stage.job.exit_code == 0
    assert stage.job.failure is None


@pytest.mark.parametrize(("status", "code"), [(3, 3), (1, 1), (-9, 137), (-11, 139), (255, 255)])
def test_the_first_failure_ends_the_job_and_gives_its_code(status, code):
    stage = Stage(3).start()
    stage.end(1, status, at=5.0)
    assert {rank for rank, _ in stage.orders(messages.Stop)} == {0, 1, 2}
    stage.end(0, -15, LAUNCHER, 5.1)
    stage.end(2, 9, LAUNCHER, 5.2)
    assert stage.job.exit_code == code
    assert stage.job.failure.instance.index == 1


def test_an_earlier_death_on_the_same_host_is_to_blame_though_it_became_known_later():
    stage = Stage(3).start()
    stage.end(2, 1, at=7.002)
    stage.end(0, -9, at=7.000)
    stage.end(1, 1, at=7.001)
    assert stage.job.failure.instance.index == 0
    assert stage.job.exit_code == 137


def test_an_early_end_without_failure_ends_nothing():
    stage = Stage(2).start()
    stage.end(0, 0)
    assert not stage.job.is_stopping


def test_a_lost_supervisor_is_a_failure_that_says_so():
    stage = Stage(2).start()
    stage.job.lost(1, "is gone")
    stage.end(0, -15, LAUNCHER)
    assert stage.job.exit_code == 137
    assert str(stage.job.failure) == (
        "instance 1 (pid 201 on localhost, replicas 2-3) was lost: its supervisor (pid 101) is gone"
    )


def test_a_supervisor_that_leaves_after_its_work_is_no_loss():
    stage = Stage(1).start()
    stage.end(0, 0)
    stage.job.lost(0, "is gone")
    assert stage.job.exit_code == 0


def test_a_supervisor_that_connects_while_the_job_stops_starts_nothing():
    stage = Stage(2)
    stage.job.hello(0, 10)
    stage.end(0, 3)
    stage.sent.clear()
    stage.job.hello(1, 11)
    assert [type(message) for _, message in stage.sent] == [messages.Stop]


def test_a_second_interrupt_stops_the_job_at_once():
    stage = Stage(2).start()
    stage.job.interrupt(signal.SIGINT, 10.0)
    assert stage.orders(messages.Stop) == [(rank, messages.Stop(signal.SIGINT, 10.0)) for rank in (0, 1)]
    stage.sent.clear()
    stage.job.interrupt(signal.SIGINT, 10.0)
    assert stage.orders(messages.Stop) == [(rank, messages.Stop(signal.SIGKILL, 0.0)) for rank in (0, 1)]
    stage.end(0, 1, LAUNCHER)
    stage.end(1, -9, LAUNCHER)
    assert stage.job.exit_code == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGPIPE, 141)])
def test_the_exit_code_has_the_signal(number, code):
    stage = Stage(1).start()
    stage.job.interrupt(number, 1.0)
    stage.end(0, 0, LAUNCHER)
    assert stage.job.exit_code == code


def test_a_failure_while_the_user_waits_does_not_hide_who_stopped_it():
    stage = Stage(2).start()
    stage.end(0, 3)
    stage.job.interrupt(signal.SIGINT, 10.0)
    stage.end(1, -9, LAUNCHER)
    assert stage.job.exit_code == 3


@pytest.mark.parametrize(("status", "code", "text"), [(-9, 137, "was killed by signal 9"), (255, 255, "exited with")])
def test_an_mpirun_that_dies_too_early_is_to_blame(status, code, text):
    stage = Stage(2).start()
    stage.job.mpirun_ended(77, status)
    stage.end(0, -15, LAUNCHER)
    stage.end(1, -15, LAUNCHER)
    assert stage.job.exit_code == code
    assert f"mpirun (pid 77) {text}" in stage.job.why


@pytest.mark.parametrize("reported", ["before", "after", "both before"])
def test_instances_that_crash_because_mpirun_was_killed_are_not_to_blame(reported):
    stage = Stage(2).start()
    if reported != "after":
        stage.end(1, -11)
    if reported == "both before":
        stage.end(0, -6)
    stage.job.mpirun_ended(77, -9)
    if reported == "after":
        stage.end(1, -11)
    if reported != "both before":
        stage.end(0, -15, LAUNCHER)
    assert stage.job.exit_code == 137
    assert "mpirun (pid 77) was killed by signal 9" in stage.job.why


def test_a_crash_is_to_blame_where_mpirun_ends_by_itself():
    stage = Stage(2).start()
    stage.job.mpirun_ended(77, 139)
    stage.end(1, -11)
    stage.end(0, -15, LAUNCHER)
    assert (stage.job.exit_code, stage.job.why) == (139, "")
    assert stage.job.failure.instance.index == 1


def test_an_mpirun_that_never_starts_anything():
    stage = Stage(2)
    stage.job.mpirun_ended(77, 0)
    assert stage.job.all_gone
    assert stage.job.exit_code == 1


def test_instances_that_the_mpi_ended_are_not_to_blame():
    stage = Stage(2).start()
    stage.end(0, -15, MPI)
    assert stage.job.is_stopping
    stage.end(1, 7, OWN)
    assert stage.job.failure.instance.index == 1
    assert stage.job.exit_code == 7


def test_an_instance_that_the_mpi_does_not_let_start_ends_the_job():
    stage = Stage(3)
    stage.job.hello(1, 11)
    stage.job.gone(1)
    assert stage.job.is_stopping
    stage.job.mpirun_ended(77, 9)
    assert stage.job.all_gone
    assert (stage.job.exit_code, stage.job.why[:16]) == (9, "mpirun (pid 77) ")


def test_a_program_that_could_not_be_started():
    stage = Stage(1)
    stage.job.hello(0, 5)
    stage.job.not_started(0, "Exec format error: ./x")
    stage.job.gone(0)
    assert stage.job.exit_code == 126
    assert "could not be started: Exec format error" in str(stage.job.failure)


def test_a_time_limit_is_a_failure_of_the_whole_job():
    stage = Stage(2).start()
    stage.job.fail("too slow", 124)
    stage.end(0, 1, LAUNCHER)
    stage.end(1, 1, LAUNCHER)
    assert (stage.job.exit_code, stage.job.why) == (124, "too slow")


def test_words_of_a_failure():
    instance = Stage(2).plan.instances[1]
    assert str(InstanceEnd(instance, 4711, -9)) == (
        "instance 1 (pid 4711 on localhost, replicas 2-3) was killed by signal 9 (SIGKILL)"
    )
    assert str(InstanceEnd(instance, 4711, 3)).endswith("exited with code 3")
    assert signal_name(62) == "a real-time signal"


def test_no_instance_is_blamed_if_none_failed():
    assert first_failure([]) is None
    assert first_failure([InstanceEnd(Stage(1).plan.instances[0], 1, -15, LAUNCHER)]) is None


def test_instances_waiting_in_mpi_finalize_are_reported_while_others_run():
    stage = Stage(3).start()
    assert stage.job.waiting == ""
    stage.job.is_in_finalize(1)
    assert stage.job.waiting == "instance 1 has ended and waits in MPI_Finalize for the others"
    assert stage.job.state(1) == "finalizing"
    stage.job.is_in_finalize(2)
    assert stage.job.waiting.startswith("instances 1, 2 have ended")
    stage.end(0, 0)
    assert stage.job.waiting == ""


#: Notices of programs: an exception ended one; one called sys.exit; one lost instance 2, or noticed that it left.
RAISED, EXITING = messages.Leaving(1, True, 0.5), messages.Leaving(3, False, 0.5)
LOST_2, SAW_2_LEAVE, LOST_SOMEBODY = messages.Lost(2, False), messages.Lost(2, True), messages.Lost(-1, False)


def test_an_instance_that_ended_because_a_peer_had_is_not_blamed():
    stage = Stage(3).start()
    stage.end(0, 1, at=1.0, notice=LOST_2)
    assert stage.orders(messages.Stop)[0][1].settle > 0  # so that the cause can end by itself
    stage.end(2, 1, at=1.5, notice=RAISED)
    stage.end(1, 1, at=1.2, notice=LOST_SOMEBODY)
    assert stage.job.failure.instance.index == 2


@pytest.mark.parametrize("status", [2, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGKILL])
@pytest.mark.parametrize(("culprits", "code"), [(5, 5), (-signal.SIGSEGV, 139), (-signal.SIGKILL, 137)])
def test_however_a_survivor_leaves_the_instance_that_it_lost_is_blamed(status, culprits, code):
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        stage = Stage(3).start()
        for rank in order:
            if rank == 2:
                stage.end(2, culprits, at=2.0)  # by a clock that is late
            else:
                stage.end(rank, status, at=1.0, notice=messages.Lost(2 - rank, False))  # 1 lost 2, 0 lost 1
        assert (stage.job.failure.instance.index, stage.job.exit_code) == (2, code)


@pytest.mark.parametrize("status", [-signal.SIGTERM, -signal.SIGKILL])
@pytest.mark.parametrize("cause", [LAUNCHER, MPI])
@pytest.mark.parametrize(("notice", "lost", "code"), [(RAISED, LOST_2, 1), (EXITING, SAW_2_LEAVE, 3)])
def test_an_instance_that_was_stopped_while_it_left_is_blamed(status, cause, notice, lost, code):
    stage = Stage(3).start()
    stage.end(0, 4, notice=lost)
    stage.end(1, -signal.SIGSEGV, at=0.7)  # in its MPI, which has aborted
    stage.end(2, status, cause, notice=notice)
    assert str(stage.job.failure).startswith("instance 2 (")
    assert str(stage.job.failure).endswith(f"exited with code {code}")
    assert stage.job.failure.status == stage.job.exit_code == code


def test_an_instance_that_caught_system_exit_before_it_was_stopped_is_not_blamed():
    stage = Stage(3).start()
    stage.end(1, 5)
    stage.end(2, -signal.SIGTERM, LAUNCHER, notice=EXITING)
    stage.end(0, 4, at=9.0, notice=LOST_2)
    assert stage.job.failure.instance.index == 1


def test_what_an_instance_loses_while_its_exception_ends_it_is_not_the_reason():
    stage = Stage(2).start()
    stage.job.noticed(1, RAISED)
    stage.end(1, 1, notice=messages.Lost(0, False))
    stage.end(0, 3, notice=messages.Lost(1, True))
    assert stage.job.failure.instance.index == 1


@pytest.mark.parametrize(("status", "cause", "how"), [(0, OWN, "exited with code 0"), (-15, LAUNCHER, "ended")])
def test_an_instance_that_left_while_it_was_needed_is_blamed(status, cause, how):
    stage = Stage(3).start()
    stage.end(1, -signal.SIGTERM, LAUNCHER)
    stage.end(0, 1, notice=LOST_2)
    stage.end(2, status, cause)
    assert str(stage.job.failure).startswith("instance 2 (")
    assert str(stage.job.failure).endswith(f"{how} while instance 0 still waited for it")
    assert stage.job.exit_code == 1


@pytest.mark.parametrize("lost", [LOST_SOMEBODY, messages.Lost(0, False), messages.Lost(7, True)])
def test_instances_that_only_lost_a_peer_are_blamed_if_there_is_no_other(lost):
    stage = Stage(1).start()
    stage.end(0, 1, notice=lost)
    assert stage.job.failure.instance.index == 0


@pytest.mark.parametrize("mpirun_first", [False, True])
@pytest.mark.parametrize("status", [-signal.SIGKILL, -signal.SIGTERM, 7])
def test_mpi_abort_names_the_instance_that_called_it(mpirun_first, status):
    stage = Stage(2).start()
    if mpirun_first:
        stage.job.mpirun_ended(99, 7)
    stage.end(0, -signal.SIGTERM, MPI)
    stage.end(1, status, MPI)
    stage.job.mpirun_ended(99, 7)
    stage.job.aborted(1, 7)
    assert stage.job.why == ""
    assert "instance 1 " in str(stage.job.failure)
    assert stage.job.exit_code == 7


@pytest.mark.parametrize(("status", "cause"), [(-signal.SIGKILL, MPI), (-signal.SIGTERM, LAUNCHER), (7, OWN)])
def test_an_instance_that_crashes_because_another_called_mpi_abort_is_not_blamed(status, cause):
    stage = Stage(2).start()
    stage.end(0, -signal.SIGSEGV, at=1.0)
    stage.end(1, status, cause, at=1.1)
    stage.job.mpirun_ended(99, 7)
    stage.job.aborted(1, 7)
    assert str(stage.job.failure).endswith("called MPI_Abort with code 7")
    assert stage.job.failure.instance.index == 1
    assert stage.job.exit_code == 7


def test_an_instance_that_another_called_mpi_abort_for_is_blamed():
    stage = Stage(2).start()
    stage.end(0, -signal.SIGTERM, MPI)
    stage.end(1, -signal.SIGKILL, MPI, notice=messages.Lost(0, False))
    stage.job.mpirun_ended(99, 7)
    stage.job.aborted(1, 7)
    assert str(stage.job.failure).endswith("ended while instance 1 still waited for it")
    assert stage.job.failure.instance.index == 0


@pytest.mark.parametrize("mpiruns", [139, 0, -signal.SIGKILL])
def test_words_about_an_abort_that_mpirun_does_not_confirm_move_no_blame(mpiruns):
    stage = Stage(2).start()
    stage.end(0, -signal.SIGSEGV, at=1.0)
    stage.end(1, -signal.SIGTERM, MPI, at=1.1)
    stage.job.mpirun_ended(99, mpiruns)
    blamed = str(stage.job.failure)
    stage.job.aborted(1, 7)
    assert str(stage.job.failure) == blamed


def test_mpi_abort_is_known_from_what_an_instance_wrote_even_if_its_end_was_not_reported():
    stage = Stage(2).start()
    for _ in range(2):  # after a pause, and at the end
        stage.job.mpirun_ended(99, 7)
    assert stage.job.why.startswith("mpirun")
    stage.job.aborted(1, 7)
    assert stage.job.why == ""
    assert "instance 1 (pid 201 on localhost, replicas 2-3) called MPI_Abort with code 7" in str(stage.job.failure)
    assert stage.job.exit_code == 7


def test_a_code_that_mpirun_passes_on_came_from_an_instance_though_it_is_reported_later():
    stage = Stage(2).start()
    stage.job.mpirun_ended(99, 5)
    stage.end(0, -signal.SIGTERM, MPI)
    stage.end(1, 5, MPI)
    assert stage.job.why == ""
    assert stage.job.failure.instance.index == 1


def test_hosts_from_which_no_instance_reported_are_to_be_tried_with_ssh():
    stage = Stage(2, remote_hosts=("localhost",))
    stage.job.mpirun_ended(99, 255)
    assert stage.job.why.endswith("; if ssh is the reason, try: ssh localhost true")


@pytest.fixture
def clock(monkeypatch):
    """The time, in seconds, that timers see."""
    now = [0.0]
    monkeypatch.setattr(event_sources.time, "monotonic", lambda: now[0])
    return now


def test_late_instances_are_reported_with_the_host_to_try(clock):
    stage = Stage(2, remote_hosts=("localhost",))
    watched(stage, clock, 32.0)
    assert stage.job.why == "instances 0, 1 did not start within 32 s; if ssh is the reason, try: ssh localhost true"


@pytest.mark.parametrize("reported", [[0], [0, 1]])
def test_one_instance_that_does_not_start_in_time(reported, clock):
    """Whether its supervisor has reported or not: changing to its folder may hang, for example."""
    stage = Stage(2)
    for rank in reported:
        stage.job.hello(rank, 7)
    stage.job.started(0, 8)
    watched(stage, clock, 32.0)
    assert stage.job.why == "instance 1 did not start within 32 s"


@pytest.mark.parametrize(
    ("started", "said"),
    [
        ([], "instances 0, 1 have not started after 10 s; the job fails after 32 s"),
        ([0], "instance 1 has not started after 10 s; the job fails after 32 s"),
        ([0, 1], None),
    ],
)
def test_the_user_is_told_what_the_launcher_waits_for(started, said, clock):
    stage = Stage(2)
    for rank in started:
        stage.job.hello(rank, 7)
        stage.job.started(rank, 8)
    assert watched(stage, clock, 10.0) == ([said] if said else [])


def watched(stage: Stage, clock: list[float], seconds: float) -> list[str]:
    """Watch the start of a job until ``seconds`` after it; return what the user is told."""
    timers, words = Timers(), []
    StartupMonitor(stage.plan, stage.job, timers, "mpirun", words.append).begin(1)
    clock[0] = seconds
    timers.run_due()
    return words
