"""FeedStepIO: a feed as the StepIO of a session. An extension of PopART."""

from __future__ import annotations

from ipu_emu.hostio import StepFeed
from ipu_emu.popart.session.step_io import PyStepIO

__all__ = ["FeedStepIO"]


class FeedStepIO(StepFeed, PyStepIO):
    """``session.run(FeedStepIO(feed, anchors))`` takes the next step of the feed in every run."""
