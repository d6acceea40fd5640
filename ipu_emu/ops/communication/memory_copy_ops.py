"""Memory copies: between two IPUs, and between an IPU and Streaming Memory.

IpuCopy       a value on one IPU -> a copy on another
RemoteLoad    a value in Streaming Memory -> a copy on the IPU
RemoteStore   a value on the IPU -> a copy in Streaming Memory
RemoteUpdate  (variable in Streaming Memory, its new value on the IPU) -> the variable
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ipu_emu.ops.core import BoundOp, Call, OpDef, always, copy_cost
from ipu_emu.ops.core.shape_rules import same

REMOTE_LOAD, REMOTE_STORE, REMOTE_UPDATE = "RemoteLoad", "RemoteStore", "RemoteUpdate"


def _copy(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(len(bound.inputs) - 1))


OPS = [
    OpDef("IpuCopy", (1, 1), same, _copy, copy_cost, elementwise=True, takes_half=always),
    OpDef(REMOTE_LOAD, (1, 1), same, _copy, copy_cost, elementwise=True, takes_half=always),
    OpDef(REMOTE_STORE, (1, 1), same, _copy, copy_cost, elementwise=True, takes_half=always),
    OpDef(REMOTE_UPDATE, (2, 2), same, _copy, copy_cost, updates=(0,), elementwise=True, takes_half=always),
]
