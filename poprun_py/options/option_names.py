"""Option names: the option that a word of the command line names, or advice on what was probably meant."""

from __future__ import annotations

from collections.abc import Mapping

from popdist_py.messages.suggestion import closest
from poprun_py.options.foreign_options import find_foreign
from poprun_py.options.option_table import OPTIONS, Option

_BY_SPELLING = {spelling: option for option in OPTIONS for spelling in option.spellings}


class UnknownOption(Exception):
    """No option has this name; ``takes_value``: the option that was probably meant needs a value."""

    def __init__(self, mistake: str, *, takes_value: bool = False) -> None:
        super().__init__(mistake)
        self.takes_value = takes_value


def option_of(field: str) -> Option:
    """Return the option that sets ``field`` of LaunchOptions."""
    return next(option for option in OPTIONS if option.target == field)


def is_option(word: str) -> bool:
    """Whether ``word`` is an option of poprun-py, spelled in full."""
    return word.startswith("--") and word[2:].partition("=")[0] in _BY_SPELLING


def find_long(name: str, rest: str = "", following: str = "") -> Option:
    """Return the option of this name, or the only one that starts with it; raise UnknownOption.

    ``name`` is without dashes; ``rest`` is what follows it: ``=value``, or nothing.
    """
    if name in _BY_SPELLING:
        return _BY_SPELLING[name]
    _refuse_foreign(f"--{name}", rest.removeprefix("=") or following)
    fitting = {option.name: option for spelling, option in _BY_SPELLING.items() if name and spelling.startswith(name)}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    raise _joined(name, rest) or (_ambiguous(name, rest, fitting) if fitting else _unknown(name, rest))


def find_short(letter: str, word: str, following: str = "") -> Option:
    """Return the option of this letter in ``word``, such as ``v`` in ``-vv``; raise UnknownOption."""
    name, _, value = word.partition("=")
    _refuse_foreign(name, value or following)
    for option in OPTIONS:
        if option.letter == letter:
            return option
    meant = _closest(name.lstrip("-"))
    raise UnknownOption(f"{word} is not an option; {_advice(meant)}")


def _joined(name: str, rest: str) -> UnknownOption | None:
    """Advice for ``--num=ilds`` (--num-ilds); None if a dash instead of the ``=`` gives no option name either."""
    joined = f"{name}-{rest[1:]}"
    option = _BY_SPELLING.get(joined.partition("=")[0])
    if not rest or option is None:
        return None
    takes_value = bool(option.read) and "=" not in joined
    return UnknownOption(f"--{name}{rest} is not an option; did you mean --{joined}?", takes_value=takes_value)


def _ambiguous(name: str, rest: str, fitting: Mapping[str, Option]) -> UnknownOption:
    names = ", ".join(f"--{name}" for name in fitting)
    takes_value = not rest and all(option.read for option in fitting.values())
    return UnknownOption(
        f"--{name} is ambiguous: it could be {names}; write more of the name", takes_value=takes_value
    )


def _unknown(name: str, rest: str) -> UnknownOption:
    meant = _closest(name)
    takes_value = bool(not rest and meant and meant.read)
    return UnknownOption(f"--{name} is not an option; {_advice(meant)}", takes_value=takes_value)


def _refuse_foreign(word: str, value: str) -> None:
    """Raise UnknownOption for an option of another launcher; a number in the advice is the one that the user gave."""
    row = find_foreign(word)
    if row is None:
        return
    equivalent, _, number = row.ours.rpartition(" ")
    ours = f"use {row.ours}" if row.ours else "leave it out"
    if number.isdigit() and value.isdigit():
        ours = f"use {equivalent} {value}"
    note = f" ({row.note})" if row.note else ""
    raise UnknownOption(f"{word} is an option of {row.launcher}; {ours}{note}")


def _closest(name: str) -> Option | None:
    return _BY_SPELLING.get(closest(name.replace("_", "-"), _BY_SPELLING))


def _advice(meant: Option | None) -> str:
    return f"did you mean --{meant.name}?" if meant else "see poprun-py --help"
