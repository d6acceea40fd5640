"""Traces of TensorFlow programs: steps, phases, and a profile of each program."""

from pathlib import Path
from typing import Any

import numpy as np

from ipu_emu import trace
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.program_profiles import read_profiles
from popdist_py.trace import PROFILE_SUFFIX


def test_a_report_has_the_steps_and_the_program(tf: Any, run: Any, tmp_path: Path) -> None:
    trace.start(tmp_path)
    try:
        assert run(lambda x: tf.square(x) + 1.0, np.array(2, np.float32)) == [5]
    finally:
        trace.stop()
    (use,) = analyse(read_run(tmp_path)).uses
    assert use.steps == 1
    assert {"compute", "compilation", "initialisation"} <= use.categories.keys()
    (profile,) = read_profiles(tmp_path).programs
    assert profile["instructions"]


def test_the_profile_is_next_to_a_cached_program(tf: Any, run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    trace.start(tmp_path / "run")
    try:
        assert run(lambda x: tf.square(x) + 2.0, np.array(2, np.float32)) == [6]
    finally:
        trace.stop()
    (executable,) = (tmp_path / "cache").glob("*.ipuexe")
    traced = read_run(tmp_path / "run")
    assert list(traced.profiles) == [f"{executable}{PROFILE_SUFFIX}"]
    assert len(read_profiles(traced.folder, traced.profiles).programs) == 1
