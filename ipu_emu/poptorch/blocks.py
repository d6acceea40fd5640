"""Blocks: groups of ops of a model, from which stages on IPUs are made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch

from ipu_emu.poptorch.errors import refusal

_HANDLE = "_poptorch_block_handle"
_DESCRIPTION = "_poptorch_block"


@dataclass(frozen=True)
class BlockUse:
    """One entry into a block: its id and the IPU that it requests."""

    user_id: str
    ipu: int | None = None


@dataclass
class BlockLog:
    """The blocks of a trace in order; block 0 has the ops before any block."""

    uses: list[BlockUse] = field(default_factory=lambda: [BlockUse("")])
    current: int | None = 0
    automatic: int = 0
    numbered: bool = False
    depth: int = 0

    def begin(self, user_id: str | None, ipu: int | None) -> None:
        """Begin a block; without an id it gets the next number."""
        if user_id is None:
            user_id = str(self.automatic)
            self.automatic += 1
        use = BlockUse(str(user_id), ipu)
        if self.uses[-1] != use or self.current != len(self.uses) - 1:
            self.uses.append(use)
        self.current = len(self.uses) - 1


class _Active(threading.local):
    log: BlockLog | None = None


#: The log of the trace that runs in this thread.
ACTIVE = _Active()


def _begin(user_id: str | None, ipu_id: int | None) -> None:
    if ACTIVE.log is not None:
        ACTIVE.log.begin(user_id, ipu_id)


def _checked(ipu_id: int | None) -> None:
    if ipu_id is not None and (not isinstance(ipu_id, int) or isinstance(ipu_id, bool)):
        raise AssertionError(f"ipu_id must be an integer, found {ipu_id!r}")


class Block(torch.nn.Module):
    """A context whose ops form a block: ``with poptorch.Block("B1", ipu_id=1): ...``"""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        _checked(ipu_id)
        self._user_id, self._ipu_id = user_id, ipu_id

    def __enter__(self) -> Block:
        log = ACTIVE.log
        if log is not None:
            if log.depth:
                raise refusal("Nested blocks are not supported.")
            log.depth += 1
            log.begin(self._user_id, self._ipu_id)
        return self

    def __exit__(self, *error: object) -> None:
        log = ACTIVE.log
        if log is not None:
            log.depth -= 1
            log.current = None

    @staticmethod
    def useAutoId() -> None:
        """Number the blocks without ids from here on by 0, 1, ..."""
        if ACTIVE.log is not None:
            ACTIVE.log.automatic = 0

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begin a block that lasts until the next one begins."""
        _checked(ipu_id)
        _begin(user_id, ipu_id)


class _BeginHook:
    """Begins a block before a module runs; a class, so that modules can be pickled and copied."""

    def __init__(self, user_id: str | None, ipu_id: int | None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        _begin(self.user_id, self.ipu_id)


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Begin a block whenever ``layer_to_call`` runs; return the module, or a function in place of a function."""
    _checked(ipu_id)
    layer = layer_to_call
    if not isinstance(layer, torch.nn.Module):
        if not callable(layer):
            raise refusal("You must provide a model or a callable to BeginBlock.")
        return BlockFunction(user_id, ipu_id)(layer)
    if hasattr(layer, _DESCRIPTION):
        raise refusal("module has already been assigned to a block.")
    handle = layer.register_forward_pre_hook(_BeginHook(user_id, ipu_id))
    object.__setattr__(layer, _DESCRIPTION, BlockUse("" if user_id is None else str(user_id), ipu_id))
    object.__setattr__(layer, _HANDLE, handle.id)
    return layer


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[Any], Any]:
    """Decorate a function so that a block begins where it is called."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def begun(*args: Any, **kwargs: Any) -> Any:
            _begin(user_id, ipu_id)
            return function(*args, **kwargs)

        return begun

    return decorate


def removeBlocks(module: torch.nn.Module) -> None:
    """Undo ``BeginBlock`` on a module and its children."""
    for submodule in module.modules():
        handle = submodule.__dict__.pop(_HANDLE, None)
        submodule.__dict__.pop(_DESCRIPTION, None)
        hooks = submodule._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if key == handle or isinstance(hook, _BeginHook)]:
            del hooks[key]


def module_repr(module: torch.nn.Module) -> str:
    """Describe a module as PyTorch does, and mark the submodules at which a block begins."""
    use: BlockUse | None = module.__dict__.get(_DESCRIPTION)
    parts = [f"({name}): {module_repr(submodule)}" for name, submodule in module.named_children()]
    inner = module.extra_repr()
    if parts:
        lines = [line for part in ([inner] if inner else []) + parts for line in part.splitlines()]
        inner = "".join(f"\n  {line}" for line in lines) + "\n"
    text = f"{module._get_name()}({inner})"
    return text if use is None else f"BeginBlock(user_id={use.user_id!r}, ipu_id={use.ipu}) {text}"


def print(module: Any) -> None:
    """Write a module, or an executor, with its blocks."""
    text = module_repr(module) if isinstance(module, torch.nn.Module) else repr(module)
    sys.stdout.write(f"{text}\n")
