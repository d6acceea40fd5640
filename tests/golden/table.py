"""Table: programs by settings, with what differs from the golden digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.golden.catalogue import PROGRAMS
from tests.golden.runs import Outcome
from tests.golden.settings import NATIVE, Setting

__all__ = ["table"]

_LEGEND = """
=  the digests in the repository     L R W  losses, results or weights differ, also from this processor's
.  no replicas to spread             l r w  they differ from the repository alone: numerics have changed
!  failed                            x      this host cannot run the setting         -  a package is missing"""


def table(
    names: Sequence[str],
    settings: Sequence[Setting],
    outcomes: Mapping[str, Outcome],
    golden: Mapping[str, Mapping[str, str]],
) -> tuple[str, bool]:
    """Return the table, with a column for each setting, and whether nothing differs or fails."""
    rows = {name: [_cell(name, setting, outcomes, golden) for setting in settings] for name in names}
    wide = max(map(len, names))
    width = max(3, 1 + max(len(cell) for row in rows.values() for cell in row))
    lines = [f"{'':{wide}}" + "".join(f"{number:>{width}}" for number in range(1, len(settings) + 1))]
    lines += [f"{name:{wide}}" + "".join(f"{cell:>{width}}" for cell in row) for name, row in rows.items()]
    lines.append("")
    for number, setting in enumerate(settings):
        cells = [row[number] for row in rows.values()]
        lines.append(f"{number + 1:3}  {setting.name:32}  {_summary(setting, cells)}")
    errors = {
        f"{name}, {setting}: {error}"
        for setting, outcome in outcomes.items()
        for name, error in outcome.errors.items()
    }
    lines += [_LEGEND, *sorted(errors)]
    return "\n".join(lines), not any(_is_bad(cell) for row in rows.values() for cell in row)


def _cell(
    name: str, setting: Setting, outcomes: Mapping[str, Outcome], golden: Mapping[str, Mapping[str, str]]
) -> str:
    if PROGRAMS[name].missing:
        return "-"
    if setting.name not in outcomes:
        return "x"
    outcome, expected = outcomes[setting.name], golden.get(name, {})
    if name in outcome.errors:
        return "!"
    if name not in outcome.digests:
        return "."
    digests, native = outcome.digests[name], outcomes.get(NATIVE.name, Outcome()).digests.get(name, {})
    different = [what for what in sorted(digests) if digests[what] != expected.get(what)]
    return "".join(what[0] if digests[what] == native.get(what) else what[0].upper() for what in different) or "="


def _is_bad(cell: str) -> bool:
    return cell not in ("=", ".", "x", "-")


def _summary(setting: Setting, cells: Sequence[str]) -> str:
    if "x" in cells:
        return f"cannot run here: {setting.obstacle()}"
    bad, ran = sum(map(_is_bad, cells)), len(cells) - cells.count(".") - cells.count("-")
    return f"{bad} of {ran} differ" if bad else f"{ran} are the same"
