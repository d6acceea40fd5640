"""Death: the first instance that ended before its program had finished: when, how, in which span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Kind

#: The launcher's records of an instance that ended normally, and of one that was ended after another had failed.
_DONE, _ENDED = "done", "ended"


@dataclass(frozen=True)
class Death:
    """The first instance of a start of the job that ended too early; ``after`` are those that ended because of it.

    ``how`` is what the launcher observed, such as SIGKILL or "exit 1"; empty without a launcher. ``nanoseconds``
    count from the start of the run.
    """

    process: Process
    nanoseconds: int
    how: str
    after: Sequence[Process]

    @property
    def sentence(self) -> str:
        """Describe the death in a sentence."""
        seen = "with the job, which was interrupted" if self.how == _ENDED else self.how
        how = f" ({seen})" if seen else ""
        others = "".join(f"; then {process.label} ended {_where(process)}" for process in self.after)
        when = f"{self.nanoseconds / 1e9:.2f} s after the beginning of the run"
        return f"{self.process.label} on {self.process.host} ended{how} {when}, {_where(self.process)}{others}"


def _where(process: Process) -> str:
    """The spans in which a process ended, or the last one that it completed."""
    if process.open:
        return "in the middle of: " + " > ".join(name for name, _ in process.open)
    spans = process.spans[process.spans["thread"] == process.main_thread]
    if not len(spans):
        return "before its first span"
    return f"after its last span: {process.trace.names[int(spans[spans['end'].argmax()]['name'])].name}"


def deaths(run: Run) -> Sequence[Death]:
    """The first death of each start of the job, in the order of the starts."""
    ends = dict(_ends(run))
    by_start: dict[int, list[tuple[int, str, Process]]] = {}
    for process in run.every_start:
        last = int(process.records["end"].max()) if len(process.records) else 0
        at, how = ends.get((process.start, process.instance), (last, ""))
        if process.open or how not in ("", _DONE):
            by_start.setdefault(process.start, []).append((at, how, process))
    return [_death(by_start[start]) for start in sorted(by_start)]


def _death(ended: Sequence[tuple[int, str, Process]]) -> Death:
    order = sorted(ended, key=lambda end: (end[1] == _ENDED, end[0]))
    at, how, process = order[0]
    return Death(process, at, how, [other for *_, other in order[1:]])


def _ends(run: Run) -> Iterator[tuple[tuple[int, int | None], tuple[int, str]]]:
    """When and how the launcher saw each instance end, by start and instance."""
    for process in run.processes:
        if process.trace.process.get("role") != "launcher":
            continue
        start = 0
        for record in process.records[process.records["kind"] == Kind.INSTANT]:
            name = process.trace.names[int(record["name"])]
            if name.name == "restart":
                start += 1
            elif name.name == "end of the instance":
                yield (start, name.args.get("rank")), (int(record["begin"]), str(name.args.get("how", "")))
