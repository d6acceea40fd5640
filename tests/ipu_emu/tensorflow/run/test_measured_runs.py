"""Measured runs: the measurements of ``ipu-emu hostio`` with real, generated and synthetic data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu.hostio.data.data_modes import MODE_VARIABLE
from ipu_emu.hostio.probe.probe import REPORTS_VARIABLE, STEPS_VARIABLE, measurement_in

STEPS, ITERATIONS, BATCH = 4, 3, 2


@pytest.mark.parametrize(("mode", "taken"), [("real", (STEPS + 3) * ITERATIONS), ("generated", 1), ("synthetic", 0)])
def test_a_program_ends_after_its_timed_runs_and_reports_them(
    tf: Any, ipu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, taken: int
) -> None:
    monkeypatch.setenv(MODE_VARIABLE, mode)
    monkeypatch.setenv(REPORTS_VARIABLE, str(tmp_path))
    monkeypatch.setenv(STEPS_VARIABLE, str(STEPS))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(
        tf.data.Dataset.from_tensors(np.ones((BATCH, 5), np.float32)).repeat()
    )
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    counted, take = list[None](), infeed.next_element
    infeed.next_element = lambda: (counted.append(None), take())[1]

    def program() -> Any:
        return ipu.loops.repeat(ITERATIONS, lambda x: outfeed.enqueue(tf.reduce_sum(x)), infeed_queue=infeed)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        run = ipu.ipu_compiler.compile(program)
    with tf.Session() as session:
        session.run(infeed.initializer)
        for _ in range(STEPS + 3 if mode == "real" else 0):
            session.run(run)
        with pytest.raises(SystemExit):
            session.run(run)
    (report,) = tmp_path.glob("*.json")
    measurement = measurement_in(report.read_bytes())
    assert (measurement.mode, measurement.steps, measurement.samples) == (mode, STEPS, STEPS * ITERATIONS * BATCH)
    assert measurement.bytes == STEPS * ITERATIONS * BATCH * 5 * 4
    assert len(counted) == taken
