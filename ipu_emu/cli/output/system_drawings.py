"""System drawings: the figures of the product documents on links, ports, sync groups and sharding, as text."""

from __future__ import annotations

from collections.abc import Callable

from ipu_emu.hardware import PATTERNS, groups
from ipu_emu.hardware.position import FREE_PORTS, RAIL_PORTS, RUNG_PORTS

_RUNG, _RAILS, _FREE = "  ".join(RUNG_PORTS), *(["  ".join(pair) for pair in pairs] for pairs in (RAIL_PORTS, FREE_PORTS))

_LINKS = f"""\
Link controllers of the four IPUs of an IPU-Machine (Fig. 7.2)

      up   {_FREE[0]}                                   up   {_FREE[1]}
            ┃                                             ┃
        ┌───┸───┐       {_RUNG}        ┌───┸───┐
        │ IPU 2 ╞═════════════════════════════════════╡ IPU 3 │   rung: 6 IPU-Links
        └───┰───┘              east edges             └───┰───┘
  {_RAILS[0]}    ┃ west edges                       {_RAILS[1]}   ┃         rail: 2 IPU-Links each
        ┌───┸───┐       {_RUNG}        ┌───┸───┐
        │ IPU 0 ╞═════════════════════════════════════╡ IPU 1 │
        └───┰───┘                                     └───┰───┘
            ┃                                             ┃
      down {_FREE[0]}                                   down {_FREE[1]}

Host-Links of all four lead to the IPU-Gateway, which has the 100 GbE ports: GW-Links, and the host.
Which end of a rail has which of its two names is not published."""

_PANEL = f"""\
External ports of an IPU-Machine (Fig. 7.4)

         from            link controllers
  up     IPU 2, IPU 3    {_FREE[0]}, {_FREE[1]}    4 IPU-Link ports, to the machine above
  down   IPU 0, IPU 1    {_FREE[0]}, {_FREE[1]}    4 IPU-Link ports, to the machine below
  side   IPU-Gateway     2 x 100 GbE       GW-Link ports, to this machine of the next Pods
  host   IPU-Gateway     100 GbE           RoCEv2 network of the host

The numbers of the IPU-Link ports on the front panel are not published. On a torus cables join the ports up of the top
machine with the ports down of the lowest; on a mesh these ports are free."""

_COPIES = """\
A graph with two shards: copies between IPUs, Send and Recv between host and IPU (Fig. 2.3)

     the program                          with shards

  P0  P1     P2  P3      CPU     P0   P1                P2   P3
   \\  /       \\  /               Send Send              Send Send
    A           B                 │    │                 │    │
     \\         /         IPU 0   Recv Recv       IPU 1  Recv Recv
      \\       /                     \\ /                    \\ /
         C                           A ──── copy ────┐      B
         │                               (IPU-Link)  └───── C
       result                                               │
                                                           Send
                         CPU                               Recv, the result"""

_TWIST = """\
The two rings of a barley twist, and the ring of a torus of 8 replicas of one IPU

  barley twist: Serpent       and mirrored Serpent      torus: Interleaved

  row 3    6 ══ 7               6 ══ 7                    6 ══ 7
           .    ║               ║    .                    ║    ║
  row 2    4 ══ 5               4 ══ 5                    4    5
           ║    .               .    ║                    ║    ║
  row 1    2 ══ 3               2 ══ 3                    2    3
           .    ║               ║    .                    ║    ║
  row 0    0 ══ 1               0 ══ 1                    0 ══ 1
           loop-back 6 ══ 0     loop-back 7 ══ 1          no loop-back cable

The two rings of a barley twist wind round each other as its strands do: together they use every rail and every loop-back
cable, and every rung in both directions. A torus has the same cables and one ring, up one rail and down the other.
gcl draws on a mesh by default, as the user guide does; the launcher sets ipuLinkTopology=torus for programs, as PopRun
does. Replicas of one IPU use the same ring on both; on 64 IPUs predictions assume the loop-back cables of a Pod64."""


def _sync() -> str:
    """The members of GS1 and GS2 of four IPUs, by pattern."""
    lines = ["Sync groups of four IPUs, A B in row 1, C D in row 0 (Fig. 6.1)", ""]
    names = {2: "A", 3: "B", 0: "C", 1: "D"}
    for pattern in PATTERNS.values():
        sets = [groups(kind, list(names), 4) for kind in (pattern.gs1, pattern.gs2)]
        gs1, gs2 = ("  ".join(f"[{' '.join(names[ipu] for ipu in members)}]" for members in each) for each in sets)
        lines.append(f"  {pattern.name:<18}GS1  {gs1:<24}GS2  {gs2:<20}host I/O: {pattern.host.upper()}")
    lines += ["", "The IPUs in [ ] wait for each other at each sync of the group; others go on."]
    return "\n".join(lines)


def _cards() -> str:
    """A model of 32 layers on the eight C2 cards of a DSS8440."""
    lines = ["A model of 32 layers on a DSS8440: eight C2 cards, 16 IPUs, two layers on each (Fig. 2.1)", ""]
    for card in range(8):
        left, right = (f"IPU {ipu:>2}: layers {2 * ipu:>2}, {2 * ipu + 1:>2}" for ipu in (2 * card, 2 * card + 1))
        lines.append(f"  card {card}   [ {left} ] ══> [ {right} ]" + ("  ══> next card" if card < 7 else "  ══> loss"))
    return "\n".join([*lines, "", "The backward pass takes the same way back. IPU-Links join the IPUs and the cards."])


#: The text of each drawing, by the name that ``ipu-emu info --draw`` takes.
DRAWINGS: dict[str, Callable[[], str]] = {
    "sync": _sync,
    "links": lambda: _LINKS,
    "panel": lambda: _PANEL,
    "cards": _cards,
    "copies": lambda: _COPIES,
    "twist": lambda: _TWIST,
}
