"""Tile work: cycles that tiles spend between the exchanges of a phase, and the memory that this takes.

    select     own fragment of many     dynamic slice: a word a cycle; switch: 8 bytes a cycle, and code per case
    store      Copy, Reduce             8 bytes a cycle, 288 cycles a call
    I/O tiles  copy in, copy out        the tensor crosses the exchange of the I/O tiles before and after

The fullest tile determines the time, which is why tensors are reordered before an all-reduce. With
useOptimisedLayout a fragment is sent from the tiles that hold it; without, it is first spread evenly over all tiles,
which takes fewer cycles but an exchange program for every case. Rates are those of hardware.md, section 2; that a
dynamic slice moves one word a cycle, and that an exchange program is as large as a case of a switch, is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gcl.fabric.tile_mapping import (
    EXCHANGE_BYTES_PER_CYCLE,
    SWITCH_CASE_BYTES,
    TILES_PER_IPU,
    TileBalance,
    linear,
    selection,
)
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, Exchange, Reduce, Slice
from gcl.scheduling.schedule import Schedule

COPY_BYTES_PER_CYCLE, WORD = 8, 4
CALL_CYCLES = 288


@dataclass(frozen=True)
class TileMemory:
    """Bytes on the fullest tile: buffers of fragments in transit, and code that selects and sends them."""

    buffers: int
    code: int

    @property
    def nbytes(self) -> int:
        return self.buffers + self.code


class TileWork:
    """The work of one phase of a schedule, on every IPU of a replica."""

    def __init__(self, schedule: Schedule, phase: ProgramPhase) -> None:
        self._phase, self._program, self.itemsize = phase, phase.program, schedule.itemsize
        self._tiles = schedule.options.num_io_tiles or TILES_PER_IPU
        self._io, self._optimised = schedule.options.num_io_tiles is not None, schedule.options.use_optimised_layout
        self._cases = max(self._program.input_fragments, self._program.output_fragments)

    def on_tile(self, elements: int) -> int:
        """Elements on the fullest tile of a slice of ``elements``."""
        if not self._optimised:
            return -(-elements // self._tiles)
        tensor = max(self._program.widths, default=0) * self._cases
        sizes = linear(tensor, self.itemsize, self._tiles)
        if self._phase.reordered_over:
            balance = TileBalance(sizes, self._phase.reordered_over, self.itemsize)
            visits = -(-elements // max(1, balance.fragment))
            return min(elements, visits * balance.on_tile)
        return min(elements, max(sizes, default=0))

    @property
    def selection(self) -> str:
        """dynamic slice or switch."""
        fullest = self.on_tile(max(self._program.widths, default=0))
        return selection(fullest, destination=self._phase.destination)

    @cached_property
    def cycles(self) -> float:
        """Cycles between exchanges: the sum of those of the busiest IPU in each gap; 0 in groups of one replica."""
        if self._program.group.size == 1:
            return 0.0
        total, gap = 0.0, dict.fromkeys(range(len(self._program.widths)), 0.0)
        for step in self._program.steps:
            if isinstance(step, Exchange):
                for copy in step.copies:
                    gap[copy.ipu] += self._selected(copy.source) + self._selected(copy.target)
                total += max(gap.values())
                gap = dict.fromkeys(gap, 0.0)
            else:
                own = step.own if isinstance(step, Reduce) else step.source
                gap[self._ipu(step.target)] += self._selected(own) + self._selected(step.target) + self._stored(step)
        return total + max(gap.values(), default=0.0)

    def exchange_cycles(self, exchange: Exchange) -> float:
        """Cycles that the fullest tile sends, or receives, in ``exchange``; its copies are on different tiles."""
        most = max((self.on_tile(copy.source.elements) for copy in exchange.copies), default=0)
        return most * self.itemsize / EXCHANGE_BYTES_PER_CYCLE

    @property
    def copy_in_cycles(self) -> float:
        """Cycles in which the input moves to the I/O tiles, if there are any."""
        return self._copy_cycles(self._program.input_fragments)

    @property
    def copy_out_cycles(self) -> float:
        """Cycles in which the output leaves the I/O tiles, if there are any."""
        return self._copy_cycles(self._program.output_fragments)

    @property
    def memory(self) -> TileMemory:
        """Buffers of fragments in transit, and code."""
        if not self._program.exchanges:
            return TileMemory(0, 0)
        width = self.on_tile(max(self._program.widths)) * self.itemsize
        between = [name for name in self._program.buffers if name not in (INPUT, OUTPUT)]
        buffers = width * (1 + sum(self._program.fragments(name) for name in between))
        programs = (self.selection == "switch") + (not self._optimised)
        return TileMemory(buffers, programs * self._cases * SWITCH_CASE_BYTES)

    def _ipu(self, part: Slice) -> int:
        """The IPU that holds ``part``."""
        end = 0
        for ipu, width in enumerate(self._program.widths):
            end += width
            if part.high <= end:
                return ipu
        return 0

    def _selected(self, part: Slice) -> float:
        """Cycles to select ``part``; 0 if it is the same for all replicas."""
        if part.buffer not in (INPUT, OUTPUT) or self._program.fragments(part.buffer) == 1:
            return 0.0
        rate = WORD if self.selection == "dynamic slice" else COPY_BYTES_PER_CYCLE
        return self.on_tile(part.elements) * self.itemsize / rate

    def _stored(self, step: Copy | Reduce) -> float:
        return CALL_CYCLES + self.on_tile(step.target.elements) * self.itemsize / COPY_BYTES_PER_CYCLE

    def _copy_cycles(self, fragments: int) -> float:
        nbytes = fragments * max(self._program.widths, default=0) * self.itemsize
        copies = self._io and bool(self._program.exchanges)
        return nbytes / (self._tiles * EXCHANGE_BYTES_PER_CYCLE) if copies else 0.0
