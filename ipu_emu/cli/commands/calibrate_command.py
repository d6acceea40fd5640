"""calibrate command: ``ipu-emu calibrate`` fits the parameters of predictions to measured rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu_emu.cli.output.printing import check_outputs, print_json, say, write
from ipu_emu.errors import EmulatorError

if TYPE_CHECKING:
    from ipu_emu.predict.calibration.profile import Profile

_HELP = """Fit the parameters of ipu-emu predict to measured steps, and write them to a file for --calibration.

ROWS is a CSV file with a line for each measured configuration: columns model, replicas, batch, accumulation, and
step_seconds or samples_per_second; other columns are options of predict (ipus, system, recompute, layers, ...).
Without ROWS, the default rows are used: published results of 16 to 128 IPUs.

\b
Examples
  ipu-emu calibrate                                          the default calibration
  ipu-emu calibrate --print-rows > rows.csv                  its rows, to which you can add your own
  ipu-emu calibrate rows.csv -o profile.json --leave-one-out
  ipu-emu predict resnet50 --calibration profile.json

The parameters are shares of nominal rates, and factors for older releases; none is specific to a row. A parameter
that no row determines keeps its nominal value and is marked. All rows of the same configuration together
count as one.
"""


@click.command(help=_HELP, short_help="Fit predictions to measured steps.")
@click.argument("rows", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the calibration.")
@click.option("--leave-one-out", is_flag=True, help="Show how well the other configurations predict each one.")
@click.option("--print-rows", is_flag=True, help="Print the default rows and exit.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def calibrate(rows: Path | None, output: Path | None, leave_one_out: bool, print_rows: bool, form: str) -> None:
    """Fit, write and print."""
    from ipu_emu.predict.calibration.fit import profile_of
    from ipu_emu.predict.calibration.profile import SHIPPED_ROWS
    from ipu_emu.predict.calibration.rows import read_rows, rows_text

    if print_rows:
        click.echo(SHIPPED_ROWS.read_text(), nl=False)
        return
    check_outputs(output=output)
    text = SHIPPED_ROWS.read_text() if rows is None else rows_text(rows)
    name = "rows.csv" if rows is None else rows.name
    profile = profile_of(read_rows(text, name), name)
    if leave_one_out and not profile.leave_one_out:
        raise EmulatorError(f"--leave-one-out: all rows of {name} are of one configuration; add rows of another")
    if output is not None:
        write(output, (json.dumps(profile.dump(), indent=1) + "\n").encode())
    if form == "json":
        print_json(profile.dump() | {"fit": _errors(profile)})
    else:
        say(_text(profile, leave_one_out))


def _errors(profile: Profile) -> dict[str, float]:
    sizes = [abs(error) for error in profile.residuals.values()]
    return {"mean": sum(sizes) / len(sizes), "most": max(sizes)}


def _text(profile: Profile, leave_one_out: bool) -> str:
    lines = [f"{profile.rows} rows of {profile.file}", ""]
    width = max(len(row.name) for row in profile.parameters)
    for row in profile.parameters:
        value = f"{row.value:7.4f} ± {row.sigma:.4f}" if row.identified else f"{row.value:7.4f} (not identified)"
        lines.append(f"{row.name:<{width}}  {value:<26}  {row.unit}: {row.meaning}")
    errors, wide = _errors(profile), max(map(len, profile.residuals))
    lines += ["", f"error of the fit: mean {errors['mean']:.2%}, maximum {errors['most']:.2%}"]
    lines += [f"  {name:<{wide}}  {error:+7.2%}" for name, error in profile.residuals.items()]
    left_out = profile.leave_one_out
    if left_out:
        said = f"mean {left_out['mean']:.2%}, maximum {left_out['most']:.2%}"
        lines += ["", f"each configuration predicted from the others: {said}"]
        for name, error in left_out["errors"].items() if leave_one_out else ():
            lost = ", ".join(left_out["needs"].get(name, ()))
            lines.append(f"  {name:<{wide}}  {error:+7.2%}" + (f"  with the nominal {lost}" if lost else ""))
    for row in profile.unidentified:
        from ipu_emu.predict.calibration.profile import PARAMETERS

        lines.append(f"\n{row.name} is not identified: add a row of {PARAMETERS[row.name].rows}")
    return "\n".join(lines)
