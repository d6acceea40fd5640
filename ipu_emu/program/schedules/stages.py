"""Stage: a scheduled stage of a pipeline: forward, backward, or both (the last forward stage in PopART).

frameworks, N = 3, training     stage  0  1  2  3  4  5      PopART     stage  0  1  2  3  4
                             forward   0  1  2  2  1  0              forward   0  1  2  1  0
                                what   F  F  F  B  B  B                 what   F  F FB  B  B
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.task import ALL_IPUS, Slot, Task, TaskType

#: The IPU of each forward stage; several for one with concurrent parts, -1 for one on all IPUs.
Mapping = Sequence[int | Sequence[int]]
_Ipus = tuple[tuple[int, ...], ...]
#: IPUs of the largest Pod.
_MOST_IPUS = 65_536


@dataclass(frozen=True)
class Stage:
    """``forward`` is the forward stage on the same IPUs; on several IPUs a stage has concurrent parts."""

    index: int
    forward: int
    ipus: tuple[int, ...]
    what: TaskType

    def tasks(self, micro_batch: int) -> Slot:
        """The tasks of the stage for one micro-batch, one on each of its IPUs."""
        return tuple(Task(ipu, self.index, micro_batch, self.what) for ipu in self.ipus)


def ipus_by_stage(stages: int, mapping: Mapping | None) -> _Ipus:
    """The IPUs of each forward stage, by default 0, 1, 2, ...; raise EmulatorError for a wrong mapping."""
    if stages < 1:
        raise EmulatorError(f"{stages} stages are not possible; a pipeline has at least one")
    mapping = range(stages) if mapping is None else mapping
    if len(mapping) != stages:
        raise EmulatorError(f"Each stage must be mapped to an IPU: {len(mapping)} mappings != {stages} stages")
    ipus = tuple((entry,) if isinstance(entry, int) else tuple(entry) for entry in mapping)
    for stage, entry in enumerate(ipus):
        exists = entry == (ALL_IPUS,) or all(0 <= ipu < _MOST_IPUS for ipu in entry)
        if not entry or len(set(entry)) < len(entry) or not exists:
            raise EmulatorError(
                f"stage {stage} is mapped to {mapping[stage]}; use an IPU from 0 to {_MOST_IPUS - 1:,}, different "
                "IPUs for concurrent parts, or -1 for all IPUs"
            )
    return ipus


def framework_stages(ipus: _Ipus, training: bool) -> tuple[Stage, ...]:
    """Forward stages 0 to N - 1; in training then the backward ones, of N - 1 down to 0."""
    count = len(ipus)
    forward = [Stage(index, index, ipus[index], TaskType.FORWARD) for index in range(count)]
    backward = [
        Stage(2 * count - 1 - stage.forward, stage.forward, stage.ipus, TaskType.BACKWARD) for stage in forward
    ]
    return (*forward, *reversed(backward)) if training else tuple(forward)


def popart_stages(ipus: _Ipus, training: bool) -> tuple[Stage, ...]:
    """As for frameworks, but in training the last forward stage includes its backward: 2F - 1 stages."""
    if not training:
        return framework_stages(ipus, training)
    last = len(ipus) - 1
    forward = [Stage(index, index, ipus[index], TaskType.FORWARD) for index in range(last)]
    backward = [Stage(2 * last - stage.forward, stage.forward, stage.ipus, TaskType.BACKWARD) for stage in forward]
    return (*forward, Stage(last, last, ipus[last], TaskType.BOTH), *reversed(backward))


def rotation(stages: Sequence[Stage], count: int, offsets: Sequence[int]) -> Iterator[Slot]:
    """The slots of ``count`` micro-batches in rows: each row repeats the list of stages, later rows start later.

    3 stages, offsets 0 and 1; "." where a row has not begun, or has ended
      slot     0 1 2 3 4 5 6
      row 0    0 1 2 0 1 2 .     micro-batches 0 and 2
      row 1    . 0 1 2 0 1 2     micro-batches 1 and 3

    Within a slot the tasks come row by row.
    """
    length, rows = len(stages), len(offsets)
    last_round, last_row = divmod(count - 1, rows)
    for slot in range((last_round + 1) * length + offsets[last_row]):
        active: Slot = ()
        for row, offset in enumerate(offsets):
            round, stage = divmod(slot - offset, length)
            if 0 <= round * rows + row < count and round >= 0:
                active += stages[stage].tasks(round * rows + row)
        yield active
