"""Colours of categories, uses of memory and tasks of pipelines: the same in all tabs and runs."""

from __future__ import annotations

from ipu_emu.trace.time_use import IMPORTS, OTHER
from popdist_py.trace import Category

CATEGORIES = {
    Category.COMPILATION: "#4e79a7",
    Category.COMPUTE: "#f28e2b",
    Category.IPU_COPIES: "#59a14f",
    Category.DATA: "#e15759",
    Category.COLLECTIVES: "#76b7b2",
    Category.HOST_IO: "#edc948",
    Category.INITIALISATION: "#b07aa1",
    Category.LAUNCH: "#ff9da7",
    OTHER: "#9c755f",
    Category.WEIGHTS: "#2f6f4f",
    Category.UPDATE: "#7b5ea7",
    Category.CHECKPOINT: "#c0504d",
    Category.USER: "#8c8c8c",
    Category.STREAMING_MEMORY: "#a0cbe8",
    IMPORTS: "#5f6b7a",
}
PALETTE = tuple(CATEGORIES.values())
#: Colours of the modelled work of IPUs.
TASKS = {
    "forward": "#4e79a7",
    "backward": "#f28e2b",
    "forward+backward": "#59a14f",
    "recompute": "#b07aa1",
    "weight update": "#9c755f",
    "copies between IPUs": "#76b7b2",
    "collectives": "#e15759",
    "compute": "#4e79a7",
    "host I/O": "#edc948",
    "load": "#edc948",
    "store": "#ff9da7",
}
OTHER_TASK = "#8c8c8c"
BUBBLE = "#e4e7eb"
