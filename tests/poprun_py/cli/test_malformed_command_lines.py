"""Malformed command lines: valid ones with typical errors always give a message, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poprun_py.cli import main
from poprun_py.options.option_table import OPTIONS

ENTRIES = json.loads((Path(__file__).parents[1] / "data/poprun_command_lines.json").read_text())["entries"]

GOOD = [
    [word for word in entry["launcher_argv"][1:] if not word.startswith(("$", "time=", "+"))] for entry in ENTRIES
] + [
    shlex.split(line)
    for line in (
        "--num-instances 2 --num-replicas=4 --num-ilds 2 --print-topology yes -vv --grace 3 --timeout=60",
        "-H localhost --host-subnet lo --process-placement=spreadcore --log-dir logs --progress off --backend mpi",
        "--mpi-global-args '--mca a b' --mpi-global-args=--tag-output --instance-mpi-local-args '0:-x A=B'",
        "--vipu-partition p --vipu-server-port 8090 --vipu-server-timeout=3 --vipu-partition-attempts 2",
        "--export-config o.toml --overwrite-config yes --format json --executable-cache-path cache --offline-mode=on",
    )
]

#: Values that every option rejects if it parses its value.
NONSENSE = st.sampled_from(
    ["", "$N", "{name}", "-1", "0x2", "1e999", "two", "9" * 30, "nan", "yes,no", "\x00", "\udcff", "٣"]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def malformed(draw: st.DrawFn) -> list[str]:
    """A valid line with one to four of its words mutated; the program is never removed."""
    line = list(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(line) - 1)))
        word = line[at] if line else "--"
        line[at : at + 1] = draw(mutations(word))
    return line


def mutations(word: str) -> st.SearchStrategy[list[str]]:
    cut = len(word) // 2
    name, _, value = word.partition("=")
    return st.one_of(
        st.just([]),  # lost
        st.just([word, word]),  # twice
        st.just([word[:cut], word[cut:]]),  # a stray blank
        st.just([word[:cut] + word[cut + 1 :]]),  # a lost letter
        st.just([word.replace("-", "_")]),
        st.just([word.replace("-", "=", 3).replace("=", "-", 2)]),
        st.just([word.upper()]),
        NONSENSE.map(lambda text: [f"{name}={text}"]),
        NONSENSE.map(lambda text: [name, text]),
        TEXT.map(lambda text: [word[:cut] + text + word[cut:]]),
        st.just([f"{name}={value}="]),
        st.sampled_from(OPTIONS).map(lambda option: [f"--{option.name}"]),
        st.sampled_from(OPTIONS).flatmap(lambda option: NONSENSE.map(lambda text: [f"--{option.name}={text}"])),
    )


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(malformed())
def test_a_malformed_line_is_explained(line):
    code, out, err = outcome(["--dry-run", *line, "--", "true"])
    assert "Traceback" not in err
    if code == 0:
        assert out  # it was valid after all, or requested help
        return
    assert (code, out) == (2, ""), (code, err)
    assert all(message.startswith("poprun-py: ") for message in err.splitlines())


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([option for option in OPTIONS if option.read]), NONSENSE, st.booleans())
def test_the_message_names_the_option(option, value, joined):
    words = [f"--{option.name}={value}"] if joined else [f"--{option.name}", value]
    code, _, err = outcome(["--dry-run", *words, "--", "true"])
    assert code in (0, 2)
    if code:
        assert f"--{option.name}" in err


@settings(max_examples=300)
@given(st.sampled_from([option for option in OPTIONS if len(option.name) > 5]), st.data())
def test_a_misspelled_name_is_named_with_the_right_one(option, data):
    """One letter lost or changed in the middle of a name."""
    at = data.draw(st.integers(2, len(option.name) - 2))
    letter = data.draw(st.sampled_from(["", "_", "q"]))
    wrong = option.name[:at] + letter + option.name[at + 1 :]
    code, _, err = outcome(["--dry-run", f"--{wrong}=1", "--", "true"])
    names = {name for other in OPTIONS for name in other.spellings}
    if wrong not in names and not any(name.startswith(wrong) for name in names):
        assert code == 2
        assert f"--{wrong}" in err
        assert "did you mean --" in err or "is an option of" in err


def test_every_message_is_one_line():
    code, _, err = outcome(["--num-instances=1\r\x1b[2J\n\u2028", "true"])
    assert code == 2
    assert err.count("\n") == len(err.splitlines()) == 1
    assert "\x1b" not in err


def outcome(line: list[str]) -> tuple[int, str, str]:
    """Run it in this process, in an empty folder that must stay empty."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        environment = {**os.environ, "XDG_STATE_HOME": os.path.join(folder, "state")}
        with patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(line)
        assert os.listdir(folder) == []
    return code, *(stream.buffer.getvalue().decode(errors="surrogateescape") for stream in flushed(out, err))


def flushed(*streams: io.TextIOWrapper) -> list[io.TextIOWrapper]:
    for stream in streams:
        stream.flush()
    return list(streams)
