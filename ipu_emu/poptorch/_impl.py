"""_impl: PopTorch's internals, refused by name, but for ops that have a public function of the same form."""

from __future__ import annotations

from typing import Any

import torch

from ipu_emu.poptorch import ops


def _refuse(module: str, name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"{module}.{name} is internal to PopTorch and not emulated; use the public names of poptorch"
    )


def __getattr__(name: str) -> Any:
    _refuse("poptorch._impl", name)


class _TorchOps:
    """torch.ops.poptorch."""

    nop = staticmethod(ops.nop)
    pop_name_scope = staticmethod(ops.pop_name_scope)
    push_name_scope = staticmethod(ops.push_name_scope)
    recomputation_checkpoint = staticmethod(ops.recomputationCheckpoint)
    set_available_memory = staticmethod(ops.set_available_memory)

    def __getattr__(self, name: str) -> Any:
        _refuse("torch.ops.poptorch", name)


vars(torch.ops)["poptorch"] = _TorchOps()
