"""Phase: one step program of a schedule, on the links of one level of the fabric.

level      group                                              links
inside     members of a group in one IPU-Link domain           IPU-Links, ring order of the fabric
across     members at the same position of each domain         GW-Links, domains in ascending order, closed to a ring
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from gcl.core.groups import Group
from gcl.core.layout import HostRearrangement
from gcl.core.request import Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric
from gcl.fabric.ring_order import Order, order_of, quad_orders, ring
from gcl.fabric.tile_mapping import TILES_PER_IPU
from gcl.scheduling.method_choice import Choice, choose
from gcl.scheduling.methods.method import METHODS, Method
from gcl.scheduling.methods.ring_stream import RingTrack
from gcl.scheduling.options import Options
from gcl.scheduling.program.forwarding import forwarded
from gcl.scheduling.program.step_program import Exchange, Slice, Step, StepProgram
from gcl.scheduling.program.torus_turns import split

#: The links of phases within IPU-Link domains.
IPU_LINKS = "IPU-Links"


@dataclass(frozen=True)
class ProgramPhase:
    """A program, and the rearrangements of each replica's tensor ``before`` and ``after`` it.

    ``why``: the reason for its method. ``reordered_over``: the number of fragments over which the reorder
    before an all-reduce distributes every tile (``gcl.fabric.tile_mapping``), 0 without a reorder; it affects the
    cost, not the values.
    ``destination``: the program writes into an existing tensor.
    """

    program: StepProgram
    links: str
    why: str
    before: HostRearrangement | None = None
    after: HostRearrangement | None = None
    reordered_over: int = 0
    destination: bool = True


@dataclass(frozen=True)
class Level:
    """A division into groups whose members are all in one domain (``inside``) or all in different domains."""

    group: Group
    inside: bool

    @property
    def size(self) -> int:
        return self.group.size

    @property
    def links(self) -> str:
        return IPU_LINKS if self.inside else "GW-Links"


def levels(group: Group, fabric: Fabric) -> list[Level]:
    """Divide ``group`` into one or two levels; raise ArgumentError if it does not fit the domains.

    16 replicas in 2 domains   ALL             inside {0 .. 7} {8 .. 15},          across {0 8} {1 9} ...
                               CONSECUTIVE 4   inside {0 .. 3} {4 .. 7} ...
                               ORTHOGONAL 2                                        across {0 8} {1 9} ...
    """
    domain, replicas = fabric.replicas_per_domain, group.replicas
    if domain % (group.stride * group.size) == 0:
        return [Level(group, inside=True)]
    if group.stride % domain == 0:
        return [Level(group, inside=False)]
    if domain % group.stride or group.stride * group.size % domain:
        raise ArgumentError(
            f"groups of {group.size} with stride {group.stride} do not fit IPU-Link domains of {domain} "
            "replicas; every group must lie within one domain, or have the same number of members in each it touches"
        )
    here = domain // group.stride
    return [
        Level(Group(replicas, group.stride, here), inside=True),
        Level(Group(replicas, domain, group.size // here), inside=False),
    ]


@dataclass(frozen=True)
class PhaseBuilder:
    """Makes the programs of a schedule of ``total`` phases with the methods of ``chain`` under ``options``."""

    fabric: Fabric
    itemsize: int
    chain: tuple[Method, ...]
    total: int
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        allowed = {1, self.total} | ({2} if self.total > 2 else set())
        if len(self.chain) not in allowed:
            raise ArgumentError(
                f"{len(self.chain)} methods ({', '.join(self.chain)}) do not fit this collective, which has "
                f"{self.total} phases; name {' or '.join(map(str, sorted(allowed)))}"
            )

    def method(self, collective: Collective, level: Level, elements: int, phase: int) -> Choice:
        """The method of ``phase``: the requested one, or with auto by the ``elements`` of its input.

        Domains form a plain ring, so between domains quad_directional_ring becomes bidirectional_ring_pair.
        """
        requested = self._requested(collective, phase)
        if requested is Method.QUAD_DIRECTIONAL_RING and not level.inside:
            quad_orders(self.fabric)  # raises where the fabric does not support it
            return Choice(
                Method.BIDIRECTIONAL_RING_PAIR, "in place of quad_directional_ring, because domains form one ring"
            )
        if requested is not Method.AUTO:
            return Choice(requested, "as requested")
        return choose(collective, elements * self.itemsize, self.fabric, level.size, within=level.inside)

    def ring(
        self,
        collective: Collective,
        level: Level,
        widths: tuple[int, ...],
        choice: Choice,
        *,
        before: HostRearrangement | None = None,
        after: HostRearrangement | None = None,
        reordered_over: int = 0,
    ) -> ProgramPhase:
        """Reduce-scatter or all-gather fragments of ``widths``."""
        scatter, method = collective is Collective.REDUCE_SCATTER, choice.method
        generate = METHODS[method].reduce_scatter if scatter else METHODS[method].all_gather
        fragments = (level.size, 1) if scatter else (1, level.size)
        track = RingTrack(level.group, self._orders(level, method), widths)
        program = self.program(collective, str(method), track, fragments, generate)
        destination = scatter or reordered_over > 0
        return ProgramPhase(program, level.links, choice.why, before, after, reordered_over, destination)

    def program(
        self,
        collective: Collective,
        method: str,
        track: RingTrack,
        fragments: tuple[int, int],
        generate: Callable[[RingTrack], Iterator[Step]],
    ) -> StepProgram:
        """The steps that ``generate`` makes, with exchanges split where the fabric or the tile limit requires it."""
        steps = tuple(generate(track))
        program = StepProgram(collective, method, track.group, track.widths, *fragments, steps, track.orders)
        if self._forwards(track):
            program = forwarded(program, self.fabric)
        program = split(program, self.fabric)
        most = self.options.max_bytes_per_tile
        if most is None:
            return program
        return limited(program, most * (self.options.num_io_tiles or TILES_PER_IPU) // self.itemsize)

    def _forwards(self, track: RingTrack) -> bool:
        """Whether rings of strided groups within a domain are forwarded through the replicas in between."""
        group, option = track.group, self.options.use_forwarding_to_support_strided_groups
        inside = self.fabric.replicas_per_domain % (group.stride * group.size) == 0
        single = self.fabric.ipus_per_replica == 1
        return bool(track.orders) and group.stride > 1 and inside and (single if option is None else option)

    def _requested(self, collective: Collective, phase: int) -> Method:
        if len(self.chain) == self.total:
            return self.chain[phase]
        return self.chain[-1 if collective is Collective.ALL_GATHER else 0]

    def _orders(self, level: Level, method: Method) -> tuple[tuple[int, ...], ...]:
        names: tuple[Order, ...] = (order_of(self.fabric) if level.inside else Order.FLAT,)
        if method is Method.BROADCAST:
            names = ()
        elif method is Method.QUAD_DIRECTIONAL_RING:
            names = quad_orders(self.fabric)
        return tuple(ring(name, level.size) for name in names)


def limited(program: StepProgram, most: int) -> StepProgram:
    """``program`` with exchanges in which no IPU sends more than ``most`` elements (at least 1 per copy).

    limit of 4 elements       exchange 1   [0:10] clockwise             exchange 1   [0:3]
                                                                        exchange 2   [3:6]
                                                                        exchange 3   [6:10]

    The limit applies to the sum of what an IPU sends in an exchange, because that is in one buffer (maxBytesPerTile).
    """
    return program.with_exchanges(lambda exchange: _limited_exchanges(exchange, max(1, most)))


def _limited_exchanges(exchange: Exchange, most: int) -> Iterator[Exchange]:
    widest = max((copy.source.elements for copy in exchange.copies), default=1)
    parts = min(widest, -(-max(exchange.elements_by_ipu().values(), default=0) // most))
    if parts <= 1:
        yield exchange
        return
    for part in range(parts):
        piece = partial(_piece, part=part, parts=parts)
        copies = (replace(copy, source=piece(copy.source), target=piece(copy.target)) for copy in exchange.copies)
        yield Exchange(tuple(copy for copy in copies if copy.source.elements))


def _piece(fragment: Slice, part: int, parts: int) -> Slice:
    size = fragment.elements
    return replace(fragment, low=fragment.low + size * part // parts, high=fragment.low + size * (part + 1) // parts)
