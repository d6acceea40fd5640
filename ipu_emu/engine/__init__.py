"""engine: runs an executable on this machine, on real data and in real time."""

from ipu_emu.engine.calls.instruction_calls import Feed
from ipu_emu.engine.calls.wall_time import Kind, Wall
from ipu_emu.engine.engine import Engine
from ipu_emu.engine.replicas.local_replicas import Replicas

__all__ = ["Engine", "Feed", "Kind", "Replicas", "Wall"]
