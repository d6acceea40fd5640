"""Traces of TensorFlow programs: steps, phases, and a profile of each program."""

from pathlib import Path
from typing import Any

import numpy as np

from ipu_emu import trace
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.program_profiles import read_profiles


def test_a_report_has_the_steps_and_the_program(tf: Any, run: Any, tmp_path: Path) -> None:
    trace.start(tmp_path)
    try:
        assert run(lambda x: tf.square(x) + 1.0, np.array(2, np.float32)) == [5]
    finally:
        trace.stop()
    (use,) = analyse(read_run(tmp_path)).uses
    assert use.steps == 1
    assert {"compute", "compilation", "initialisation"} <= use.categories.keys()
    (profile,) = read_profiles(tmp_path).whole
    assert profile["instructions"]
