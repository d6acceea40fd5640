"""libpvti: programs that mark their work with PopVision's names, and the variables that switch recording on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from ipu_emu.trace import read_run
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.warm_processes import EMULATOR, warm_python

PROGRAM = str(PROGRAMS / "ipu_emu/instrumented.py")


@pytest.mark.parametrize(
    ("variable", "options", "said"),
    [
        ("PVTI_OPTIONS", {"enable": "true"}, None),
        ("PVTI_OPTIONS", {"enable": "true", "channels": "a"}, "channels='a'"),
        ("POPLAR_ENGINE_OPTIONS", {"autoReport.all": "true"}, None),
        ("PVTI_OPTIONS", {"enable": "false"}, None),
        ("PVTI_OPTIONS", {"enable": "on"}, "enable='on'"),
        ("PVTI_OPTIONS", "{", "not a JSON object"),
        ("PVTI_OPTIONS", [], "not a JSON object"),
        ("POPLAR_ENGINE_OPTIONS", [], None),
    ],
    ids=["pvti", "unknown", "autoReport", "off", "no switch", "malformed", "no object", "options that are no object"],
)
def test_an_instrumented_program_runs_unchanged(
    tmp_path: Path, variable: str, options: object, said: str | None
) -> None:
    if isinstance(options, dict):
        options |= {("directory" if variable == "PVTI_OPTIONS" else "autoReport.directory"): str(tmp_path)}
    text = options if isinstance(options, str) else json.dumps(options)
    command = [*warm_python(*EMULATOR), "-m", "ipu_emu.compat", PROGRAM]
    environment = {**os.environ, variable: text}
    run = subprocess.run(
        command, env=environment, check=True, timeout=60, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert run.stderr.count(variable) == (said is not None)
    assert said is None or said in run.stderr
    if not isinstance(options, dict) or options.get("enable") in ("false", "on"):
        assert not list(tmp_path.iterdir())
        return
    assert not list(tmp_path.rglob("*.pvti"))
    said = " ".join(CliRunner().invoke(main, ["report", "--help"]).output.split())
    assert "PopVision's .pvti files are neither read nor written" in said
    (process,) = read_run(tmp_path).processes
    names = [process.trace.names[int(span["name"])] for span in process.spans]
    assert [name.name for name in names] == ["epoch", "load", "work", "crop", "crop"]
    assert {name.args["channel"] for name in names} == {"training"}
    (counter,) = process.records[process.records["kind"] == 3]
    assert process.trace.names[int(counter["name"])].name == "loss [nat]: train"
    assert np.int64(counter["value"]).view(np.float64) == 0.5
