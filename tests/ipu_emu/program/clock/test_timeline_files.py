"""Timeline pictures: loops fill their time, ticks are round, and files can be saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.program.clock import CostCategory, Span, TimelineSegment
from ipu_emu.program.clock.timeline import MOST_SPANS
from ipu_emu.program.clock.timeline_files import round_marks


def body() -> TimelineSegment:
    """Two spans on two IPUs, 3 s."""
    spans = [Span(0, 0.0, 2.0, "a", CostCategory.COMPUTE), Span(1, 2.0, 1.0, "b", CostCategory.COPY)]
    return TimelineSegment(3.0, spans=spans)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_every_iteration_of_a_loop_is_drawn(times: int) -> None:
    segment = TimelineSegment(1.0)
    segment.append(body(), times)
    assert [span.start for span in segment.spans] == [
        1.0 + 3 * number + start for number in range(times) for start in (0, 2)
    ]
    assert segment.seconds == 1 + 3 * times


def test_the_rest_of_a_long_loop_is_one_span_on_each_ipu() -> None:
    segment = TimelineSegment()
    segment.append(body(), 10_000)
    assert len(segment.spans) == MOST_SPANS + 2
    for span, ipu in zip(segment.spans[-2:], (0, 1), strict=True):
        assert (span.ipu, span.name) == (ipu, "9500 more iterations")
        assert span.start + span.seconds == segment.seconds == 30_000


@pytest.mark.parametrize(
    ("seconds", "marks"),
    [
        (0.0, [0]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (8e-3, [i * 1e-3 for i in range(9)]),
        (43.0, [0, 10, 20, 30, 40]),
    ],
)
def test_ticks_are_round(seconds: float, marks: list[float]) -> None:
    assert list(round_marks(seconds)) == pytest.approx(marks)


def test_a_timeline_is_saved_as_a_picture_or_a_trace(tmp_path: Path) -> None:
    segment = body()
    segment.save(tmp_path / "step.svg", "step")
    segment.save(str(tmp_path / "step.json"))
    picture = (tmp_path / "step.svg").read_text()
    assert CostCategory.COPY.value in picture
    assert CostCategory.HOST.value not in picture
    assert "2.5" not in picture.split("IPU 0")[0]
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert [event["dur"] for event in events if event["ph"] == "X"] == [2e6, 1e6]
    with pytest.raises(EmulatorError, match=r"timelines are .svg or .json"):
        segment.save(tmp_path / "step.png")
