"""Option group: named values with types, readable and assignable as attributes until they are frozen."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ipu_emu.session.options.without_effect import say_without_effect

_Self = TypeVar("_Self", bound="OptionGroup")


class OptionGroup:
    """Values by key; assigning a key that does not exist, or any while frozen, raises AttributeError.

    A warning names a key ``without_effect`` that gets another value than it had.
    """

    without_effect: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **defaults: Any) -> None:
        object.__setattr__(self, "_values", dict(defaults))
        object.__setattr__(self, "_is_frozen", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"Invalid attribute {name}.")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if name not in self._values:
            raise AttributeError(f"Invalid attribute {name}.")
        self.set(**{name: value})

    def set(self: _Self, **values: Any) -> _Self:
        """Assign values of the same type to existing keys."""
        self.checkIsFrozen()
        for name, value in values.items():
            if name not in self._values:
                raise AttributeError(f"Invalid attribute {name}.")
            old = self._values[name]
            same = isinstance(value, type(old)) or (isinstance(old, float) and isinstance(value, int))
            if not (same or value is None or old is None):
                raise AssertionError(f"Unexpected type {type(value)} for option {name}. Expected {type(old)}")
            if name in self.without_effect and value != old:
                say_without_effect("The option", [name])
            self._values[name] = value
        return self

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raise AttributeError if the options are frozen."""
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def createOrSet(self, **values: Any) -> None:
        """Assign keys that may be new."""
        self.checkIsFrozen()
        self._values.update(values)

    def exists(self, key: str) -> bool:
        """Whether there is a value with this key."""
        return key in self._values

    def deleteIfExists(self, key: str) -> None:
        """Remove a value."""
        self.checkIsFrozen()
        self._values.pop(key, None)

    def _groups(self) -> dict[str, OptionGroup]:
        return {name: group for name, group in self.__dict__.items() if isinstance(group, OptionGroup)}

    def _freeze(self, frozen: bool = True) -> None:
        object.__setattr__(self, "_is_frozen", frozen)
        for group in self._groups().values():
            group._freeze(frozen)

    def toDict(self) -> dict[str, Any]:
        """Return all values by key."""
        return dict(self._values)

    def __repr__(self) -> str:
        lines = [f"{name}: {value!r}" for name, value in self._values.items()]
        lines += [f"{name.lstrip('_')}: {group!r}" for name, group in self._groups().items()]
        return f"{type(self).__name__.lstrip('_')}({', '.join(lines)})"


def checked(name: str, value: Any, *types: type) -> Any:
    """Return ``value``; raise AssertionError unless it has one of ``types``."""
    wrong = isinstance(value, bool) and bool not in types
    if wrong or not isinstance(value, types):
        raise AssertionError(f"Unexpected type {type(value)} for option {name}. Expected {types[0]}")
    return value


def positive(name: str, value: int) -> int:
    """Return ``value``; raise AssertionError unless it is an integer, ValueError unless it is at least 1."""
    if checked(name, value, int) < 1:
        raise ValueError(f"{name} must be at least 1, found {value}")
    return value


def of_kind(value: Any, kind: type[Any]) -> Any:
    """Return ``value``; raise AssertionError unless it is of this ``kind``."""
    if not isinstance(value, kind):
        raise AssertionError(f"Unexpected type {type(value)}. Expected {kind}")
    return value
