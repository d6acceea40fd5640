"""Sample randomness: random numbers for a sample that depend on its name, and not on the process that loads it.

They come from the generators of Python, numpy and PyTorch that a program shares, and from those that its data set,
its transforms or its sampler hold or name.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

#: How deep generators are looked for in the attributes of a data set, and in lists of at most how many items.
_DEPTH, _MOST = 6, 100
#: The types of generators, and how to get their state, to set it, and to seed them.
_TYPES: tuple[tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any], Callable[[Any, int], Any]], ...] = (
    (random.Random, lambda rng: rng.getstate(), lambda rng, state: rng.setstate(state), lambda rng, n: rng.seed(n)),
    (
        np.random.RandomState,
        lambda rng: rng.get_state(),
        lambda rng, state: rng.set_state(state),
        lambda rng, n: rng.seed(n & 0xFFFFFFFF),
    ),
    (
        np.random.Generator,
        lambda rng: rng.bit_generator.state,
        lambda rng, state: setattr(rng.bit_generator, "state", state),
        lambda rng, n: setattr(rng.bit_generator, "state", type(rng.bit_generator)(n).state),
    ),
    (
        torch.Generator,
        lambda rng: rng.get_state(),
        lambda rng, state: rng.set_state(state),
        lambda rng, n: rng.manual_seed(n),
    ),
)
_GENERATORS = tuple(row[0] for row in _TYPES)


class Generators:
    """The generators that the program shares, and those of ``holders``."""

    def __init__(self, *holders: Any) -> None:
        shared = (np.random.mtrand._rand, torch.default_generator)
        held = {id(rng): rng for rng in (*_held(holders, _DEPTH, set()), *shared)}
        self._generators = [(rng, next(row for row in _TYPES if isinstance(rng, row[0]))) for rng in held.values()]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context manager: at its end the generators are as before."""
        states = self.states()
        try:
            yield
        finally:
            self.restore(states)

    def states(self) -> list[Any]:
        """Return the states of the generators."""
        return [random.getstate(), *(row[1](rng) for rng, row in self._generators)]

    def restore(self, states: Sequence[Any]) -> None:
        """Set the states of the generators."""
        random.setstate(states[0])
        for (rng, row), state in zip(self._generators, states[1:], strict=True):
            row[2](rng, state)

    def seed(self, *name: Any) -> None:
        """Seed the generators with the values in ``name``, whose texts must be the same in all processes."""
        number = int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=7).digest(), "little")
        random.seed(number)
        for rng, row in self._generators:
            row[3](rng, number)


def _held(holders: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """Yield the generators in ``holders``, their items and attributes, and those that their functions name."""
    for holder in holders:
        if id(holder) in seen or isinstance(holder, ModuleType | torch.Tensor | np.ndarray | str | bytes | type):
            continue
        seen.add(id(holder))
        if isinstance(holder, _GENERATORS):
            yield holder
        elif depth:
            yield from _held(_parts(holder), depth - 1, seen)


def _parts(holder: Any) -> list[Any]:
    if isinstance(holder, dict | list | tuple):
        items = list(holder.values() if isinstance(holder, dict) else holder)
        return items if len(items) < _MOST else []
    if isinstance(holder, MethodType):
        return [holder.__self__, holder.__func__]
    if isinstance(holder, functools.partial):
        return [holder.func, holder.args, holder.keywords]
    if isinstance(holder, FunctionType):
        return [*_named(holder), *(cell.cell_contents for cell in holder.__closure__ or () if _is_filled(cell))]
    functions = [member for member in vars(type(holder)).values() if isinstance(member, FunctionType)]
    return [*functions, *getattr(holder, "__dict__", {}).values()]


def _named(function: FunctionType) -> list[Any]:
    """The generators that a function names, and the functions of its module."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [
        value
        for value in named
        if isinstance(value, _GENERATORS)
        or (isinstance(value, FunctionType) and value.__module__ == function.__module__)
    ]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def items_with_own_numbers(data: Any, generators: Generators, *name: Any) -> Iterator[Any]:
    """Yield the items of ``data``, whose random numbers no other code draws between them."""
    with generators.restored():
        generators.seed(*name)
        items = iter(data)
        states = generators.states()
    while True:
        with generators.restored():
            generators.restore(states)
            try:
                item = next(items)
            except StopIteration:
                return
            states = generators.states()
        yield item


class SeededOrder:
    """What a sampler of the program gives in an epoch, drawn with random numbers that depend on (name, epoch)."""

    def __init__(self, sampler: Any, *name: Any, holder: Any = None) -> None:
        self._sampler, self._name = sampler, name
        self._generators = Generators(sampler, holder)

    def __len__(self) -> int:
        return len(self._sampler)

    def __call__(self, epoch: int) -> list[Any]:
        """Return all of the epoch's items, without a change of generators (380 us) for each."""
        self._begin(epoch)
        with self._generators.restored():
            self._generators.seed(*self._name, epoch, "order")
            return list(self._sampler)

    def items(self, epoch: int) -> Iterator[Any]:
        """Yield the epoch's items."""
        self._begin(epoch)
        return items_with_own_numbers(self._sampler, self._generators, *self._name, epoch, "order")

    def _begin(self, epoch: int) -> None:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)


class WrappedSamples:
    """A data set in another's place; attributes are read and set as those of the data set."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples
        self._generators: Generators | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._samples, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.__dict__[name] = value
        else:
            setattr(self._samples, name, value)

    def _load(self, named: Sequence[tuple[tuple[Any, ...], Any]], *, at_once: int) -> list[Any]:
        """Return the samples with these names and indices, ``at_once`` by a data set that loads several."""
        generators = self._of_samples()
        several = getattr(self._samples, "__getitems__", None)
        samples: list[Any] = []
        for start in range(0, len(named), 1 if several is None else at_once):
            generators.seed(*named[start][0])
            indices = [index for _, index in named[start : start + at_once]]
            samples += [self._samples[indices[0]]] if several is None else several(indices)
        return samples

    def _of_samples(self, *holders: Any) -> Generators:
        """Return the generators, in the process that loads."""
        if self._generators is None:
            self._generators = Generators(self._samples, *holders)
        return self._generators


class SeededSamples(WrappedSamples):
    """The samples of a data set by (epoch, index, how often the index came before in the epoch)."""

    def __init__(self, samples: Any, seed: int) -> None:
        super().__init__(samples)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, draw: tuple[int, Any, int]) -> Any:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: list[tuple[int, Any, int]]) -> list[Any]:
        with self._of_samples().restored():
            return self._load([((self._seed, *draw), draw[1]) for draw in draws], at_once=len(draws))


class Draws:
    """What a sampler gives, each index as (epoch, index, how often it came before in the epoch)."""

    def __init__(self, sampler: Any) -> None:
        self._sampler, self._epoch = sampler, 0

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        before: Counter[Any] = Counter()

        def draw(index: Any) -> tuple[int, Any, int]:
            before[index] += 1
            return epoch, index, before[index] - 1

        for item in self._sampler:
            yield [draw(index) for index in item] if isinstance(item, list) else draw(item)
