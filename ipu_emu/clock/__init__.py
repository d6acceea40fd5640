"""clock: what a program would take on IPUs: a price for each instruction, and a timeline of all."""

from ipu_emu.clock.machine import Machine
from ipu_emu.clock.pricing import Kind, Price, Pricing
from ipu_emu.clock.timeline import Block, Span, timeline

__all__ = ["Block", "Kind", "Machine", "Price", "Pricing", "Span", "timeline"]
