"""session: InferenceSession and TrainingSession, and their step data."""

from ipu_emu.popart.exceptions import OutOfMemoryException

__all__ = ["OutOfMemoryException"]
