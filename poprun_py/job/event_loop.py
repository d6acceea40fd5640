"""Run: carries a plan out, once: starts mpirun, listens to the supervisors, and tears everything down."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections import deque

from poprun_py.errors import ChannelError
from poprun_py.job.failure import signal_name
from poprun_py.job.failure_report import Teller, explain
from poprun_py.job.job_state import Job
from poprun_py.job.mpirun import channel_addresses, start_mpirun
from poprun_py.job.output_delivery import Delivery
from poprun_py.job.progress_display import Watch
from poprun_py.job.startup_monitor import Startup
from poprun_py.job.stdin import Input
from poprun_py.job.teardown import Teardown
from poprun_py.linux import processes
from poprun_py.linux.leftovers import sweep
from poprun_py.linux.pipes import OutputPipe
from poprun_py.linux.signals import Wakeup
from poprun_py.linux.timers import Alarms
from poprun_py.numa.topology import listed
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import Log
from poprun_py.output.screen import Screen
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel
from poprun_py.wire.connections import Switchboard
from poprun_py.wire.listener import Reception

__all__ = ["Run"]

#: Seconds in which an instance that made mpirun end the job (MPI_Abort) may report its own exit code.
_SETTLE = 0.2

#: Seconds that an instance may wait in MPI_Finalize before it is spoken of.
_TELL_WAIT = 10.0

#: Seconds between two looks at whether the other hosts still answer.
_LOOK_EVERY = 1.0


class Run:
    """The event loop of the launcher, from the start of mpirun until nothing of the job is left.

    ``restart`` says how often the job was started before, ``deadline`` (monotonic seconds) when it must be over.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        options: LaunchOptions,
        *,
        wakeup: Wakeup,
        screen: Screen,
        stdin: Input,
        folder: str = "",
        restart: int = 0,
        deadline: float = math.inf,
    ) -> None:
        self._plan = plan
        self._options = options
        self._since = time.time()
        self._wakeup = wakeup
        self._screen = screen
        self._deadline = deadline
        self._teller = Teller(screen)
        self._starter = os.path.basename(plan.command.argv[0])  # mpirun, mpiexec or srun
        self._log = Log(options.verbosity, screen.stderr)
        self._delivery = Delivery(plan, options, screen, restart=restart, nudge=wakeup.nudge)
        self._alarms = Alarms()
        self._watch = Watch(plan, screen, self._alarms, wanted=options.progress, state=self._state)
        self._selector = selectors.PollSelector()  # unlike epoll it takes files, which stdin may be
        self._switchboard = Switchboard(self._selector, on_message=self._on_message, on_loss=self._on_loss)
        self._reception = Reception(
            self._selector,
            self._alarms,
            welcome=self._welcome,
            log=self._log.debug,
            addresses=channel_addresses(plan),
        )
        self._input = stdin
        self._job = Job(
            plan,
            since=self._since,
            has_input=stdin.is_open,
            tell=self._switchboard.tell,
            restart=restart,
            folder=folder,
            watch=self._watch.interval,
            starter=self._starter,
        )
        self._startup = Startup(plan, self._job, self._alarms, self._starter)
        self._teardown = Teardown(plan, self._job, self._alarms, self._switchboard)
        self._mpirun = 0
        self._mpirun_status: int | None = None
        self._mpirun_text: deque[bytes] = deque(maxlen=64)
        self._has_told_wait = False

    def run(self) -> int:
        self._start()
        self._screen.start()  # threads, so not before mpirun is forked
        self._delivery.start()
        while not self._finished:
            for key, _ in self._selector.select(self._alarms.until_next()):
                if key.fd in self._selector.get_map():  # an earlier event of this round may have closed it
                    key.data()
            self._alarms.ring()
            self._after_writes()
            self._teardown.watch()
        return self._finish()

    # -- the start --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for note in self._plan.notes:
            self._log.info(note)
        self._log.info("Running command: " + " ".join(f"'{word}'" for word in self._plan.command.argv))
        self._mpirun, pipes = start_mpirun(self._plan, address=self._reception.address, key=self._reception.key)
        self._log.info(f"Waiting for {self._starter} (PID {self._mpirun})")
        self._register_all(pipes)
        self._startup.begin(self._mpirun)
        self._teardown.begin(self._mpirun)
        if self._plan.remote_hosts:
            self._alarms.set(_LOOK_EVERY, self._check_hosts)
        if self._deadline < math.inf:
            self._alarms.set(max(0.001, self._deadline - time.monotonic()), self._on_timeout)
        self._watch.start()

    def _register_all(self, mpirun_pipes: list[OutputPipe]) -> None:
        read = selectors.EVENT_READ
        self._selector.register(self._wakeup, read, self._on_wakeup)
        for pipe in mpirun_pipes:
            self._selector.register(pipe, read, lambda pipe=pipe: self._on_mpirun_text(pipe))

    def _on_timeout(self) -> None:
        waiting = f"; {self._job.waiting}" if self._job.waiting else ""
        why = f"the job did not end within {self._options.timeout:g} s (--timeout){waiting}"
        self._job.fail(why, 124, final=True)

    # -- the supervisors --------------------------------------------------------------------------------------------

    def _welcome(self, hello: messages.Hello, channel: Channel) -> bool:
        if hello.rank in self._switchboard:
            return False
        self._startup.meet(hello)
        if not self._job.expects(hello.rank):
            return False
        self._switchboard.connect(hello.rank, channel)
        self._job.hello(hello.rank, hello.pid)
        self._log.debug(f"Supervisor {hello.pid} on {hello.host} is ready for instance {hello.rank}")
        if hello.rank == 0:
            self._await_input()
        return True

    def _on_message(self, rank: int, message: messages.Message) -> None:
        match message:
            case messages.Output(stream, data) if stream in (1, 2):
                self._delivery.take(rank, stream, data)
            case messages.Started(pid, cpus, memory, warning):
                where = f"CPUs {listed(cpus)}, memory nodes {listed(memory)}"
                self._log.debug(f"Instance {rank} has pid {pid}; {where}")
                if warning:
                    self._log.info(f"Instance {rank}: {warning}")
                self._job.started(rank, pid)
                self._watch.rows[rank].nodes = listed(memory)
            case messages.NotStarted(reason):
                self._job.not_started(rank, reason)
            case messages.Exited():
                self._job.exited(rank, message)
            case messages.Gone():
                self._delivery.finish(rank)
                self._job.gone(rank)
            case messages.Usage():
                self._watch.rows[rank].take_usage(message, time.monotonic())
            case messages.Report():
                self._watch.rows[rank].take_report(message, time.monotonic())
            case messages.Hung():
                self._job.hung(rank)
            case messages.Waiting():
                self._job.waits(rank)
                self._alarms.set(_TELL_WAIT, self._tell_wait)
            case messages.InputTaken():
                self._await_input()
            case _:
                raise ChannelError(f"an unexpected {type(message).__name__} message")

    def _on_loss(self, rank: int, why: str) -> None:
        self._log.debug(f"The channel of instance {rank} is closed: its supervisor {why}")
        self._job.lost(rank, why)

    def _check_hosts(self) -> None:
        self._switchboard.give_up_silent()
        self._alarms.set(_LOOK_EVERY, self._check_hosts)

    def _tell_wait(self) -> None:
        """Say once who waits for the others: its exit code comes last, and so does the end of a job it has failed."""
        if self._job.waiting and not self._job.is_stopping and not self._has_told_wait:
            self._has_told_wait = True
            self._teller.say(f"{self._job.waiting}; if it failed (sys.exit), nobody is told: see --timeout")

    def _state(self, rank: int) -> tuple[int, str]:
        return self._job.pid(rank), self._job.state(rank)

    # -- the user ---------------------------------------------------------------------------------------------------

    def _await_input(self) -> None:
        if self._input.is_open and self._input.fileno() not in self._selector.get_map():
            self._selector.register(self._input, selectors.EVENT_READ, self._on_input)

    def _on_input(self) -> None:
        self._selector.unregister(self._input)
        self._switchboard.tell(0, messages.Input(self._input.read()))

    def _on_wakeup(self) -> None:
        for number in self._wakeup.read():
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._on_interrupt(number)
            elif number in (signal.SIGUSR1, signal.SIGUSR2):
                self._job.forward(number)
        dead, _ = processes.reap()
        for pid, status in dead:
            if pid == self._mpirun:
                self._on_mpirun_end(status)

    def _on_interrupt(self, number: int) -> None:
        name = signal_name(number)
        again = "ends at once" if self._job.is_stopping else f"ends on {name}; a second one ends it at once"
        self._teller.say(f"the job {again}")
        self._job.interrupt(number, self._options.grace)

    def _after_writes(self) -> None:
        """Let the instances write as much more as has been dealt with."""
        self._screen.after_writes()
        for rank, count in self._delivery.delivered():
            self._switchboard.tell(rank, messages.Credit(count))
        if self._screen.is_broken and not self._job.is_stopping:
            self._job.interrupt(signal.SIGPIPE, 0.5)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _on_mpirun_text(self, pipe: OutputPipe) -> None:
        data = pipe.read()
        if data:
            self._mpirun_text.append(data)
        elif data is not None:
            self._selector.unregister(pipe)
            pipe.close()

    def _on_mpirun_end(self, status: int) -> None:
        shown = status if status >= 0 else 128 - status
        self._log.info(f"{self._starter} (PID {self._mpirun}) terminated with exit code {shown}")
        self._mpirun_status = status
        self._startup.end()
        settle = _SETTLE if status >= 0 and not self._job.all_gone else 0.0
        self._alarms.set(settle, lambda: self._job.mpirun_ended(self._mpirun, status))

    @property
    def _finished(self) -> bool:
        return self._teardown.has_killed or (self._mpirun_status is not None and self._job.all_gone)

    def _finish(self) -> int:
        processes.end_descendants(timeout=0.5)
        if self._mpirun_status is not None:
            self._job.mpirun_ended(self._mpirun, self._mpirun_status)
        code = self._job.exit_code
        if code or self._teardown.has_killed:
            for path in sweep(since=self._since):
                self._log.debug(f"Removed {path}")
        for rank in range(len(self._plan.instances)):
            self._delivery.finish(rank)
        self._screen.draw(b"")
        explain(self._job, self._delivery, self._teller, starter=self._starter, words=self._mpirun_text)
        self._close()
        return code

    def _close(self) -> None:
        """Give up what another run would open again."""
        if error := self._delivery.close():
            self._teller.say(error)
        self._switchboard.close()
        self._reception.close()
        self._selector.close()

    @property
    def may_restart(self) -> bool:
        """Did the job fail in a way that need not come again?"""
        return self._job.may_restart
