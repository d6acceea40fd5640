"""Op digests: the digest of the results of every op that a process runs, to find the first that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu_emu.engine import Engine
from ipu_emu.engine.calls import instruction_calls, op_calls
from ipu_emu.hostio import digest

__all__ = ["OPS", "first_difference", "record_ops"]

#: The variable that names the file.
OPS = "GOLDEN_OPS"


def record_ops(path: str) -> None:
    """Write a line for each op that runs from now on, in place of the check of its results for infinities."""

    def recorded(label: str, step: Callable[[], None], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        def run() -> None:
            step()
            line_digest = digest({str(number): array for number, array in enumerate(outputs) if array is not None})
            with open(path, "a") as file:
                file.write(f"{line_digest} {label}\n")

        return run

    for module in (op_calls, instruction_calls):
        module.with_floating_point_check = recorded
    Engine.__init__ = _watching(Engine.__init__)


def _watching(make: Callable[..., None]) -> Any:
    def watching(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named | {"watch": True})

    return watching


def first_difference(lines: Sequence[str], other: Sequence[str]) -> str:
    """Describe the first op whose results differ; ops of pipelines may be in another order in the other file.

    The ops of each label are compared in their order.
    """
    theirs: dict[str, list[str]] = {}
    for line in other:
        line_digest, label = line.split(" ", 1)
        theirs.setdefault(label, []).append(line_digest)
    for number, line in enumerate(lines):
        line_digest, label = line.split(" ", 1)
        if not theirs.get(label) or theirs[label].pop(0) != line_digest:
            return f"{number} results are equal, then {label}"
    return f"the results of all {len(lines)} ops are equal"
