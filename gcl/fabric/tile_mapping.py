"""Tile mapping: the tiles of an IPU that a collective uses, and the layout of fragments on them.

    perIPUTiles(0, 32)              I/O tiles: pairs that share an exchange bus
    perIPUTiles(32, 1440)           the rest, for compute

TileBalance is the reorder before an all-reduce: every fragment takes slices from the tiles round robin, so that all
tiles have work in every exchange (here 3 tiles of 6 elements, 2 fragments):

    tile        0             1             2
    element     0 1 2 3 4 5   6 7 8 9 . .   . . . . . .
    fragment    0 0 0 1 1 1   0 0 0 1 1 1   0 0 0 1 1 1

GCL reference, sections 1 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm

from gcl.core.argument_checks import check_whole, is_whole
from gcl.errors import ArgumentError

#: Tiles of a GC200 or a Bow IPU.
TILES_PER_IPU = 1472
MIN_IO_TILES = 32
EXCHANGE_BYTES_PER_CYCLE = 4
#: Code of a switch per tile and case: 8 calls of 12 bytes. A dynamic slice is therefore cheaper up to 96 elements.
SWITCH_CASE_BYTES = 12 * 8
DYNAMIC_SLICE_ELEMENTS = 96
_TILES_PER_BUS = 2
_LEAST_SLICE_BYTES = 128


def check_io_tiles(count: int, tiles: int = TILES_PER_IPU) -> None:
    """Raise ArgumentError unless collectives can run on ``count`` of the ``tiles`` of an IPU."""
    if count < MIN_IO_TILES or count % 2 or count >= tiles:
        raise ArgumentError(
            f"{count} I/O tiles are not possible; their number must be even, at least {MIN_IO_TILES} and below the "
            f"{tiles} tiles of an IPU"
        )


def per_ipu_tiles(
    offset: int, count: int, *, ordered: bool = True, pairs: bool = True, tiles: int = TILES_PER_IPU
) -> list[int]:
    """The ids of ``count`` tiles after the first ``offset``, spread evenly over the IPU.

    Consecutive ranges of offset and count contain every id exactly once. ``pairs``: the two tiles of an exchange bus
    stay together, so offset and count must be even. ``ordered``: ascending, else in the order of allocation.
    """
    step = _TILES_PER_BUS if pairs else 1
    check_whole(tiles, "tiles", 1)
    fits = is_whole(offset) and is_whole(count) and count < tiles and offset + count <= tiles
    if not fits or offset % step or count % step:
        raise ArgumentError(
            f"{count!r} tiles from {offset!r} do not fit the {tiles} tiles of an IPU; they must exist"
            + (", and come in pairs: use even numbers" if pairs else ", and leave one at least: use whole numbers")
        )
    order = [tile for first in _spread_out(tiles // step) for tile in range(first * step, first * step + step)]
    tile_ids = order[offset : offset + count]
    return sorted(tile_ids) if ordered else tile_ids


def exchange_buses(tiles: list[int]) -> int:
    """Number of exchange buses that ``tiles`` use; two tiles share one."""
    if not isinstance(tiles, Iterable) or not all(map(is_whole, tiles)):
        raise ArgumentError(f"tiles {tiles!r} are not valid; give a list of tiles by their numbers, from 0")
    return len({tile // _TILES_PER_BUS for tile in tiles})


def linear(elements: int, itemsize: int, tiles: int = TILES_PER_IPU) -> tuple[int, ...]:
    """Elements per tile of a tensor that is mapped linearly: evenly, but at least 128 bytes per tile."""
    per_tile = max(-(-elements // tiles), -(-_LEAST_SLICE_BYTES // itemsize))
    full, rest = divmod(elements, per_tile)
    return (per_tile,) * full + ((rest,) if rest else ())


def selection(elements_on_tile: int, *, destination: bool = True) -> str:
    """How a replica selects its fragment if a tile holds at most ``elements_on_tile`` elements of it.

    An all-gather that allocates its result (no ``destination``) always uses a dynamic slice.
    """
    return "dynamic slice" if not destination or elements_on_tile <= DYNAMIC_SLICE_ELEMENTS else "switch"


@dataclass(frozen=True)
class TileBalance:
    """A tensor with ``sizes[t]`` elements of ``itemsize`` bytes on tile t, distributed over ``fragments``."""

    sizes: tuple[int, ...]
    fragments: int
    itemsize: int

    @property
    def slice_bytes(self) -> int:
        """Bytes of one slice of a tile: 128, or the tile's share if larger, in whole elements and exchange words."""
        unit = lcm(EXCHANGE_BYTES_PER_CYCLE, self.itemsize)
        largest = max(self.sizes, default=0) * self.itemsize
        return -(-max(_LEAST_SLICE_BYTES, -(-largest // self.fragments)) // unit) * unit

    @property
    def fragment(self) -> int:
        """Elements of a fragment."""
        return -(-sum(self.sizes) // self.fragments)

    @property
    def on_tile(self) -> int:
        """Elements of one fragment on a tile: one slice. (The last fragments take the rest, in more slices.)"""
        return min(self.slice_bytes // self.itemsize, self.fragment)


def _spread_out(count: int) -> list[int]:
    """0 to count - 1 in bit-reversed order, so that the first few are always far apart."""
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
