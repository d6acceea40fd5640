"""checkpoint: the state of a training job on disk, written while it goes on, whole or not at all."""

from ipu_emu.checkpoint.checkpoint_folder import CheckpointError
from ipu_emu.checkpoint.checkpoints import Checkpoints, Resumed

__all__ = ["CheckpointError", "Checkpoints", "Resumed"]
