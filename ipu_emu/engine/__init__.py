"""engine: runs an executable on this machine, on real data and in real time."""

from ipu_emu.engine.binding import Feed
from ipu_emu.engine.engine import Engine
from ipu_emu.engine.replicas import Replicas
from ipu_emu.engine.wall import Kind, Wall

__all__ = ["Engine", "Feed", "Kind", "Replicas", "Wall"]
