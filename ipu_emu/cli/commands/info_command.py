"""info command: ``ipu-emu info`` draws a system, the position of each IPU in it, and the processes that use it."""

from __future__ import annotations

import click

from ipu_emu.cli.arguments.model_options import system_named
from ipu_emu.cli.output.printing import console, print_json, say
from popdist_py.messages.named_choice import NamedChoice

_HELP = """Draw a system: its machines, IPU-Link domains and IPUs, their memory and speed, and who uses which IPU.

\b
Examples
  ipu-emu info                          the system that programs get in this environment
  ipu-emu info --system pod64           a larger system
  ipu-emu info --system 4xpod16         four Pods, connected by GW-Links
  ipu-emu info --system bow-pod16 --format json
  ipu-emu info --draw links             the link controllers of an IPU-Machine

\b
Drawings
  sync     the two sync groups of four IPUs       links    link controllers between the IPUs of a machine
  panel    external ports of a machine            cards    a model on the eight C2 cards of a DSS8440
  copies   Send, Recv and copies of shards        twist    the rings of a barley twist and of a torus

\b
Systems
  pod4 pod16 pod64 pod128 pod256 ...    IPU-M2000 machines of four GC200
  bow-pod16 ...                         Bow-2000 machines of four Bow IPUs
  4xpod16                               a cluster of four Pods of 16 IPUs, an IPU-Link domain each
  m2000 bow-2000 c2 dss8440             one machine, a card with two GC2, a server with eight cards

An IPU belongs to one process at a time. Programs of one user share one system of each type; a poprun-py job has its
own system, and is listed below the drawing. IPU_EMU_SYSTEM selects the system, IPU_EMU_CLAIMS the folder of the lock
files.
"""
#: The headings of the drawings in drawings.txt.
_DRAWINGS = ("sync", "links", "panel", "cards", "copies", "twist")


@click.command(help=_HELP, short_help="A system, its IPUs, and who uses them.")
@click.option("--system", "name", help="Name of a system.  [default: $IPU_EMU_SYSTEM, else pod16]")
@click.option("--format", "form", type=NamedChoice(["text", "json"]), default="text", show_default=True)
@click.option("--draw", type=NamedChoice(_DRAWINGS), help="Print this drawing instead.")
def info(name: str | None, form: str, draw: str | None) -> None:
    """Print the system, or a drawing."""
    if draw is not None:
        if name is not None or form != "text":
            raise click.UsageError("--draw prints a drawing of its own; leave out --system and --format")
        from importlib.resources import files

        drawings = files("ipu_emu.cli.output").joinpath("drawings.txt").read_text(encoding="utf-8").split("## ")
        say(next(text for text in drawings if text.startswith(f"{draw}\n")).partition("\n")[2].rstrip())
        return
    import os

    from ipu_emu.cli.output.system_text import drawing, facts
    from ipu_emu.hardware import Claims
    from ipu_emu.hardware.ipu_locks import claims_folder

    system = system_named(name)
    claims = Claims.all_in(claims_folder(os.environ))
    if form == "json":
        print_json(facts(system, claims))
    else:
        console().print(drawing(system, claims, console().width))
