"""The methods of collectives, each a generator of step programs."""

from gcl.scheduling.methods.method import METHODS, Method, MethodPrograms, method_chain
from gcl.scheduling.methods.ring_stream import RingTrack

__all__ = ["METHODS", "Method", "MethodPrograms", "RingTrack", "method_chain"]
