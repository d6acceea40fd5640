"""Configuration file: options in a TOML file, written by --export-config and read by --import-config.

    num-instances = 2
    print-topology = true
    mpi-global-args = ["--tag-output", "--mca", "btl_tcp_if_include", "eno1"]

Keys are the long names of the options. What concerns one run only (the program, --dry-run, ...) is not stored.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

from popdist_py.files.atomic_write import replace_file
from popdist_py.files.bounded_read import open_given
from popdist_py.messages.suggestion import did_you_mean
from poprun_py.errors import UsageError
from poprun_py.options.option_table import OPTIONS, LaunchOptions, Option
from poprun_py.options.parsed_options import ParsedOptions

#: Far more than any configuration needs; reading stops there.
_MOST_BYTES = 1 << 20

#: A key of 100 parts (a.b.c = ...). Options have no parts, and tomllib takes quadratic time for them.
_DEEP_KEY = re.compile(r"""(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")

#: Fields that concern one run only; a file cannot set them.
_OF_ONE_RUN = frozenset(
    (
        *("import_config", "export_config", "overwrite_config", "dry_run", "format"),
        *("version", "version_format", "completion", "help"),
    )
)

#: Name -> option that a file may set; -v and -vv are one entry, with a number.
_STORED = {option.name: option for option in OPTIONS if option.target not in _OF_ONE_RUN and option.adds < 2}


def load(path: str) -> ParsedOptions:
    """Read a file as if its lines were on the command line; mistakes name the file."""
    parsed, source = ParsedOptions(), f"--import-config {path}"
    try:
        for key, value in _entries(path).items():
            _enter(parsed, f"{source}: {key}", key, value)
    except OSError as error:
        parsed.mistakes.append(f"{source}: the file cannot be read: {error.strerror}")
    except RecursionError:
        fault = "keys or values are nested too deeply"
        parsed.mistakes.append(f"{source}: {fault}; lines such as num-instances = 2 are expected")
    except ValueError as error:  # of TOML or of UTF-8
        parsed.mistakes.append(f"{source}: {error}; lines such as num-instances = 2 are expected")
    return parsed


def exported(options: LaunchOptions) -> str:
    """Return a file with the options that were given."""
    lines = ["# Options of poprun-py; read with: poprun-py --import-config FILE program"]
    for name, option in _STORED.items():
        if option.target in options.explicit:
            lines.append(f"{name} = {_toml(option, getattr(options, option.target))}")
    return "\n".join(lines) + "\n"


def export(options: LaunchOptions) -> None:
    """Write the file of --export-config; raise UsageError if it exists, or cannot be written."""
    path = options.export_config
    if path is None:
        return
    if os.path.lexists(path) and not options.overwrite_config:
        raise UsageError([f"--export-config {path}: the file exists; name another one or add --overwrite-config yes"])
    try:
        text = exported(options).encode()
    except UnicodeEncodeError:
        raise UsageError([f"--export-config {path}: a value is not UTF-8 and cannot be written"]) from None
    try:
        replace_file(path, text, sync=True, mode=0o600)
    except OSError as error:
        raise UsageError(
            [f"--export-config {path}: the file cannot be written: {error.strerror}; name another one"]
        ) from None


def _entries(path: str) -> dict[str, Any]:
    """Read the file; raise OSError, ValueError for what is no TOML, RecursionError for what is nested too deeply."""
    with open(open_given(path), "rb") as stream:
        text = stream.read(_MOST_BYTES).decode()
    if _DEEP_KEY.search(text):
        raise RecursionError
    return tomllib.loads(text)


def _enter(parsed: ParsedOptions, source: str, key: str, value: Any) -> None:
    option = _STORED.get(key)
    if option is None:
        parsed.mistakes.append(f"{source}: {_advice(key)}")
    elif option.adds and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        parsed.values[option.target] = value
    else:
        try:
            for word in _words(option, value):
                parsed.set(option, source, word)
        except ValueError as error:
            parsed.mistakes.append(f"{source}: {error}")


def _advice(key: str) -> str:
    if any(key == option.name for option in OPTIONS):
        return "this option cannot be set in a file; give it on the command line"
    return "there is no such option" + (did_you_mean(key.replace("_", "-"), _STORED) or "; see poprun-py --help")


def _words(option: Option, value: Any) -> Iterator[str]:
    """Yield what a value of the file would be on the command line."""
    if option.adds:
        raise ValueError(f"a whole number is expected, found {value!r}; write 0, 1 or 2")
    if option.repeats and isinstance(value, list) and all(isinstance(word, str) for word in value):
        yield from [shlex.join(value)] if option.extends else value
    elif isinstance(value, bool):
        yield "yes" if value else "no"
    elif isinstance(value, str | int | float):
        yield str(value)
    else:
        raise ValueError(f"one value is expected, found {value!r}; write a string, a number, true or false")


def _toml(option: Option, value: Any) -> str:
    if option.appends:
        value = [f"{index}:{shlex.join(words)}" for index, words in value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_quoted, value))}]"
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    """A basic string of TOML: a JSON string, except that DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
