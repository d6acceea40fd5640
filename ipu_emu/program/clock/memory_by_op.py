"""Memory by op: the bytes of each IPU's tensors by the instruction that makes them, or that first uses a variable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import leaves
from ipu_emu.program.leaf_label import LeafLabel
from ipu_emu.program.memory_plan import Lifetime

__all__ = ["memory_by_op"]

#: The label of tensors that no instruction names.
_NONE = LeafLabel("(no instruction)", "")


def memory_by_op(
    executable: Executable, always: Sequence[str], lives: Sequence[Lifetime], live: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows for one IPU, with the most bytes at its peak first.

    ``always`` are the ids of the tensors that are always live, ``lives`` the lifetimes of the others, ``live`` their
    bytes at each instruction. Each tensor counts for one instruction, so the rows add up to the memory of all.
    """
    placements = executable.plan.placements
    labels, users = [], dict[tuple[str, int], LeafLabel]()
    for leaf in leaves(executable.program):
        labels.append(LeafLabel.of(leaf))
        for id in leaf.tensors:
            if id in placements:
                users.setdefault((placements[id].region, placements[id].offset), labels[-1])
    always_bytes: dict[LeafLabel, int] = defaultdict(int)
    other_bytes: dict[LeafLabel, int] = defaultdict(int)
    at_peak: dict[LeafLabel, int] = defaultdict(int)
    peak = max(range(len(live)), key=lambda at: live[at], default=-1)
    for id in always:
        placed = placements[id]
        always_bytes[users.get((placed.region, placed.offset), _NONE)] += placed.tensor.nbytes
    for life in lives:
        label = labels[life.first] if 0 <= life.first < len(labels) else _NONE
        other_bytes[label] += life.size
        at_peak[label] += life.size if life.first <= peak <= life.last else 0
    rows = [
        {
            "name": label.name,
            "output": label.output,
            "always_live_bytes": always_bytes.get(label, 0),
            "not_always_live_bytes": other_bytes.get(label, 0),
            "bytes_at_peak": always_bytes.get(label, 0) + at_peak.get(label, 0),
        }
        for label in dict.fromkeys([*always_bytes, *other_bytes])
    ]
    return sorted(rows, key=lambda row: -row["bytes_at_peak"])
