"""clock: the modelled time of a program on IPUs: a price for each instruction, and a timeline of all."""

from ipu_emu.program.clock.machine import ModelledMachine
from ipu_emu.program.clock.pricing import CostCategory, InstructionPrice, Pricing
from ipu_emu.program.clock.span import Span
from ipu_emu.program.clock.timeline import TimelineSegment, timeline

__all__ = ["CostCategory", "InstructionPrice", "ModelledMachine", "Pricing", "Span", "TimelineSegment", "timeline"]
