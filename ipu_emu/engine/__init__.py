"""engine: runs an executable on this machine, on real data and in real time."""

from ipu_emu.engine.calls.instruction_calls import StepFeedProtocol
from ipu_emu.engine.calls.wall_time import Wall, WallCategory
from ipu_emu.engine.engine import Engine
from ipu_emu.engine.replicas.local_replicas import Replicas

__all__ = ["Engine", "Replicas", "StepFeedProtocol", "Wall", "WallCategory"]
