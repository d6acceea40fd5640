"""checkpoint: atomic, verified checkpoints of a training job, written in the background."""

from ipu_emu.hostio.checkpoint.checkpoint_folder import CheckpointError
from ipu_emu.hostio.checkpoint.checkpoints import Checkpoints, Resumed

__all__ = ["CheckpointError", "Checkpoints", "Resumed"]
