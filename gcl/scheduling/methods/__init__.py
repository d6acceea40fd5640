"""methods: the ways round a group, each a generator of step programs."""

from gcl.scheduling.methods.method import METHODS, Method, MethodPrograms, method_chain
from gcl.scheduling.methods.ring_stream import Track

__all__ = ["METHODS", "Method", "MethodPrograms", "Track", "method_chain"]
