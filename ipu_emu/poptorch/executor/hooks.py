"""Hooks: functions of the program that are called before and after every compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Hooks(dict[int, Callable[[], None]]):
    def add(self, hook: Callable[[], None], when: str) -> _Handle:
        if not callable(hook):
            raise RuntimeError(f"{when}-compile hook must be callable")
        number = max(self, default=0) + 1
        self[number] = hook
        return _Handle(self, number)


class _Handle:
    """Removes a hook."""

    def __init__(self, hooks: _Hooks, number: int) -> None:
        self._hooks, self._number = hooks, number

    def remove(self) -> None:
        self._hooks.pop(self._number, None)


#: PopTorch's hooks belong to the process, not to a model.
_BEFORE, _AFTER = _Hooks(), _Hooks()


def registerPreCompileHook(hook: Callable[[], None]) -> _Handle:
    """Call ``hook`` before every compilation."""
    return _BEFORE.add(hook, "Pre")


def registerPostCompileHook(hook: Callable[[], None]) -> _Handle:
    """Call ``hook`` after every compilation."""
    return _AFTER.add(hook, "Post")


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
