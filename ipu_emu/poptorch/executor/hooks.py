"""Hooks: functions of the program that are called before and after every compilation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle

_Hook = Callable[[], None]
#: PopTorch's hooks belong to the process, not to a model.
_BEFORE: OrderedDict[int, _Hook] = OrderedDict()
_AFTER: OrderedDict[int, _Hook] = OrderedDict()


def registerPreCompileHook(hook: _Hook) -> RemovableHandle:
    """Call ``hook`` before every compilation."""
    return _registered(hook, _BEFORE, "Pre")


def registerPostCompileHook(hook: _Hook) -> RemovableHandle:
    """Call ``hook`` after every compilation."""
    return _registered(hook, _AFTER, "Post")


def _registered(hook: _Hook, hooks: OrderedDict[int, _Hook], when: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{when}-compile hook must be callable")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@contextmanager
def compilation() -> Iterator[None]:
    """Call the hooks around the block, in the order in which they were registered."""
    for hook in list(_BEFORE.values()):
        hook()
    try:
        yield
    finally:
        for hook in list(_AFTER.values()):
            hook()
