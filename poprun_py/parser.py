"""Parser: reads a command line by PopRun's rules, and finds all its mistakes in one go.

Parsing stops at the program. ``--o v`` and ``--o=v`` are the same, an unambiguous beginning of a name will do, an
option that needs a value takes the next word whatever it looks like, and ``--`` ends the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poprun_py import words
from poprun_py.errors import UsageError
from poprun_py.options import OPTIONS, LaunchOptions, Option
from poprun_py.rules import checked

__all__ = ["parse"]


def parse(argv: Sequence[str]) -> LaunchOptions:
    """Read ``argv`` (without the launcher's own name); raise UsageError with everything that is wrong."""
    reading = _Reading(list(argv))
    reading.run()
    return checked(reading.values, tuple(reading.rest), reading.mistakes, reading.broken)


class _Reading:
    """One command line on its way through the table."""

    def __init__(self, argv: list[str]) -> None:
        self.rest = argv
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []
        self.broken: set[str] = set()

    def run(self) -> None:
        while self.rest and self.rest[0].startswith("-") and self.rest[0] != "-":
            word = self.rest.pop(0)
            if word == "--":
                return
            try:
                if word.startswith("--"):
                    self.long(word)
                else:
                    self.letters(word)
            except UsageError as error:
                self.mistakes += error.mistakes

    def long(self, word: str) -> None:
        name, equals, value = word[2:].partition("=")
        self.store(_named(name, word), f"--{name}", value if equals else None)

    def letters(self, word: str) -> None:
        """``-v``, ``-vv`` and, for options that need a value, ``-Xvalue`` and ``-X value``."""
        for position, letter in enumerate(word[1:], start=1):
            option = next((option for option in OPTIONS if option.letter == letter), None)
            if option is None:
                raise UsageError([f"{word} is not an option; {_advice(word)}"])
            if option.read is not None:
                self.store(option, f"-{letter}", word[position + 1 :] or None)
                return
            self.store(option, f"-{letter}", None)

    def store(self, option: Option, spelled: str, value: str | None) -> None:
        if option.read is None:
            self._store_flag(option, spelled, value)
            return
        if value is None:
            if not self.rest:
                self._refuse(option, f"{spelled}: a value is needed ({option.metavar}), but the command ends")
                return
            value = self.rest.pop(0)
        result = self._read(option, spelled, value)
        if option.repeats:
            more = result if option.extends else (result,)
            self.values[option.target] = (*self.values.get(option.target, ()), *more)
            return
        if option.target in self.values and self.values[option.target] != result:
            self._refuse(
                option, f"{spelled} is given twice, as {self.values[option.target]} and {value}; give it once"
            )
        self.values[option.target] = result

    def _store_flag(self, option: Option, spelled: str, value: str | None) -> None:
        on = value is None or bool(self._read(option, spelled, value))
        if not option.adds:
            self.values[option.target] = on
        elif on:
            self.values[option.target] = self.values.get(option.target, 0) + option.adds

    def _read(self, option: Option, spelled: str, value: str) -> Any:
        try:
            return (option.read or words.boolean)(value)
        except ValueError as error:
            self._refuse(option, f"{spelled} {value}: {error}, found {value!r}; {_remedy(option, spelled, value)}")
            return None

    def _refuse(self, option: Option, mistake: str) -> None:
        self.broken.add(option.target)
        raise UsageError([mistake])


def _named(name: str, word: str) -> Option:
    """The option of this name, or the only one that begins so."""
    fitting = [option for option in OPTIONS if name in option.spellings]
    fitting = fitting or [option for option in OPTIONS if name and any(s.startswith(name) for s in option.spellings)]
    if len(fitting) == 1:
        return fitting[0]
    joined = word[2:].replace("=", "-")
    if any(joined in option.spellings for option in OPTIONS):
        raise UsageError([f"{word} is not an option; did you mean --{joined}?"])
    if fitting:
        names = ", ".join(f"--{option.name}" for option in fitting)
        raise UsageError([f"--{name} is ambiguous: it could be {names}; write more of it"])
    raise UsageError([f"--{name} is not an option; {_advice(name)}"])


def _advice(name: str) -> str:
    from difflib import get_close_matches  # only a mistake needs it

    close = get_close_matches(
        name.lstrip("-").replace("_", "-"), [s for option in OPTIONS for s in option.spellings], n=1
    )
    return f"did you mean --{close[0]}?" if close else "see poprun-py --help"


def _remedy(option: Option, spelled: str, value: str) -> str:
    """What to write instead; a stray blank inside the name is the likeliest slip."""
    rest, equals, meant = value.partition("=")
    if equals and f"{spelled[2:]}-{rest}" == option.name:
        return f"did you mean --{option.name}={meant}?"
    return f"write {spelled}={option.metavar}" if option.metavar else f"write {spelled}"
