"""Parsed options: the words of a command line, read one by one into values and mistakes by PopRun's rules.

Reading stops at the program. ``--o v`` and ``--o=v`` are the same, names may be abbreviated while unambiguous, an
option that needs a value takes the next word whatever it is, and ``--`` ends the options. Before the program,
``NAME=VALUE`` sets a variable for it, as with env(1).
"""

from __future__ import annotations

import os
from typing import Any

from popdist_py.messages.suggestion import did_you_mean
from poprun_py.options import values
from poprun_py.options.option_names import UnknownOption, find_long, find_short
from poprun_py.options.option_table import Option


class _Refused(Exception):
    """The value of ``option`` cannot be used; the message is the mistake."""

    def __init__(self, option: Option, mistake: str) -> None:
        super().__init__(mistake)
        self.option = option


class ParsedOptions:
    """The state of the parser: the remaining words, the values so far, the mistakes and the fields they concern."""

    def __init__(self, argv: list[str] | None = None) -> None:
        self.rest = argv or []
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []
        self.broken: set[str] = set()

    def run(self) -> None:
        """Read options up to the program, which stays in ``rest``."""
        while self.rest:
            word = self.rest[0].strip()  # a blank within quotation marks, or an empty variable
            if word and not word.startswith("-") and not is_assignment(word):
                return
            if word == "-":
                return
            self.rest.pop(0)
            if word == "--":
                self._drop_dashes()
                return
            self._one(word)

    def _drop_dashes(self) -> None:
        """Drop further ``--``: no program has that name."""
        while self.rest and self.rest[0] == "--":
            self.rest.pop(0)

    def add_defaults(self, other: ParsedOptions) -> None:
        """Take the values of ``other`` for options that are not set here, and all its mistakes."""
        self.values = {**other.values, **self.values}
        self.mistakes = [*other.mistakes, *self.mistakes]
        self.broken |= other.broken

    def set(self, option: Option, spelled: str, value: str) -> None:
        """Store the value of an option; add a mistake if it cannot be read."""
        try:
            self._set(option, spelled, value)
        except _Refused as refused:
            self._note(refused)

    def _one(self, word: str) -> None:
        try:
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-"):
                self._letters(word)
            elif word:
                name, _, value = word.partition("=")
                self.values["assignments"] = (*self.values.get("assignments", ()), (name, value))
        except _Refused as refused:
            self._note(refused)
        except UnknownOption as unknown:
            self.mistakes.append(str(unknown))
            if unknown.takes_value and self.rest and not self.rest[0].startswith("-"):
                self.rest.pop(0)

    @property
    def _following(self) -> str:
        """The next word, which may be the value of the option that is being read."""
        return self.rest[0] if self.rest else ""

    def _long(self, word: str) -> None:
        name, equals, value = word[2:].partition("=")
        self._store(find_long(name, equals + value, self._following), f"--{name}", value if equals else None)

    def _letters(self, word: str) -> None:
        """Read ``-v``, ``-vv`` and, for options that need a value, ``-Xvalue`` and ``-X value``."""
        for position, letter in enumerate(word[1:], start=1):
            option = find_short(letter, word, self._following)
            if option.read is not None:
                rest = word[position + 1 :]
                self._store(option, f"-{letter}", rest.removeprefix("=") if rest else None)
                return
            self._store(option, f"-{letter}", None)

    def _store(self, option: Option, spelled: str, value: str | None) -> None:
        if option.read is None:
            self._store_flag(option, spelled, value)
        elif value is not None:
            self._set(option, spelled, value)
        elif not self.rest:
            raise _Refused(option, f"{spelled}: a value is needed ({option.metavar}), but the command ends")
        else:
            self._take_next(option, spelled)

    def _take_next(self, option: Option, spelled: str) -> None:
        """Take the next word as the value, whatever it is; if that is no valid value, it may be another option."""
        value = self.rest.pop(0)
        try:
            self._set(option, spelled, value)
        except _Refused:
            following = _option_in(value)
            if following is None:
                raise
            self.rest.insert(0, value)
            need = f"{spelled}: a value is needed ({option.metavar}), but --{following.name} follows"
            raise _Refused(option, f"{need}; is a variable of the shell empty?") from None

    def _set(self, option: Option, spelled: str, value: str) -> None:
        result = _read(option, spelled, value)
        before = self.values.get(option.target)
        if option.repeats:
            self.values[option.target] = (*(before or ()), *(result if option.extends else (result,)))
            return
        if before is not None and before != result:
            raise _Refused(option, f"{spelled} is given twice, as {before} and {value}; give it once")
        self.values[option.target] = result

    def _store_flag(self, option: Option, spelled: str, value: str | None) -> None:
        on = value is None or bool(_read(option, spelled, value))
        if not option.adds:
            self.values[option.target] = on
        elif on:
            self.values[option.target] = self.values.get(option.target, 0) + option.adds

    def _note(self, refused: _Refused) -> None:
        self.broken.add(refused.option.target)
        self.mistakes.append(str(refused))


def is_assignment(word: str) -> bool:
    """Whether ``word``, before the program, is NAME=VALUE, which sets a variable for the program."""
    name, equals, _ = word.partition("=")
    return bool(equals) and os.sep not in name and name.isidentifier() and name.isascii()


def _option_in(word: str) -> Option | None:
    """The option that ``word`` would be on its own."""
    if not word.startswith("--"):
        return None
    try:
        return find_long(word[2:].partition("=")[0])
    except UnknownOption:
        return None


def _read(option: Option, spelled: str, value: str) -> Any:
    try:
        return (option.read or values.boolean)(value)
    except ValueError as error:
        description = f"{value!r}" if value else "nothing (is a variable of the shell empty?)"
        said = f"{spelled} {value}".rstrip()
        raise _Refused(option, f"{said}: {error}, found {description}; {_remedy(option, spelled, value)}") from None


def _remedy(option: Option, spelled: str, value: str) -> str:
    """What to write instead; a blank instead of a dash within the name is the likeliest mistake."""
    rest, equals, meant = value.partition("=")
    if equals and f"{spelled[2:]}-{rest}" == option.name:
        return f"did you mean --{option.name}={meant}?"
    names = option.metavar.split("|")
    hint = did_you_mean(value, names) if len(names) > 1 else ""
    return f"write {spelled}={option.metavar}{hint}" if option.metavar else f"write {spelled}"
