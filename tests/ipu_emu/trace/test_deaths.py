"""Deaths: the report on an instance that ended too early."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipu_emu.trace import read_run
from ipu_emu.trace.deaths import deaths
from popdist_py.trace import Recorder

SAID = {"SIGKILL": "(SIGKILL)", "ended": "(with the job, which was interrupted)"}


@pytest.mark.parametrize("how", SAID)
def test_how_an_instance_ended(how: str, tmp_path: Path) -> None:
    about = {"host": "h", "boot": "b"}
    launcher = Recorder(str(tmp_path), limit=1 << 20, about=about | {"pid": 1, "role": "launcher"})
    instance = Recorder(
        str(tmp_path),
        limit=1 << 20,
        about=about | {"pid": os.getpid(), "environment": {"POPDIST_REPLICA_INDEX_OFFSET": "0"}},
    )
    instance.span(instance.name("training")).__enter__()
    launcher.instant(launcher.name("end of the instance", rank=0, how=how))
    (death,) = deaths(read_run(tmp_path))
    assert death.sentence.startswith(f"instance 0 on h ended {SAID[how]} 0.00 s after the beginning of the run")
    assert death.sentence.endswith("in the middle of: training")
