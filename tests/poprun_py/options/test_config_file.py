"""Configuration file: written options are read back unchanged, and errors name the file and the key."""

from __future__ import annotations

import dataclasses
import os
import stat
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poprun_py.cli import main
from poprun_py.errors import UsageError
from poprun_py.options.config_file import exported
from poprun_py.options.option_table import LaunchOptions
from poprun_py.options.parser import parse

GIVEN = [
    *(
        "--num-instances=2",
        "--num-replicas",
        "8",
        "--print-topology=yes",
        "-vv",
        "--grace",
        "2.5",
        "--host",
        "localhost",
    ),
    *("--mpi-global-args=--mca a 'b c'", "--mpi-global-args", "--tag-output", "--remove-partition=no"),
    *("--instance-mpi-local-args", "1:-x 'A=\"b c'", '--executable-cache-path=/tmp/ä "x\\y"'),
]


def mistakes(*argv: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return caught.value.lines


def fields(options: LaunchOptions, *without: str) -> dict[str, object]:
    values = {name: value for name, value in dataclasses.asdict(options).items() if name not in without}
    return values | {"explicit": options.explicit - set(without)}


def test_written_options_are_read_back_unchanged(tmp_path):
    options = parse([*GIVEN, "x"])
    (tmp_path / "o.toml").write_text(exported(options))
    again = parse(["--import-config", str(tmp_path / "o.toml"), "x"])
    assert fields(again, "import_config") == fields(options, "import_config")


#: All characters that UTF-8 has.
CHARACTERS = st.characters(exclude_categories=["Cs"])


@given(text=st.text(CHARACTERS, min_size=1), words=st.lists(st.text(CHARACTERS)))
def test_any_text_survives(text, words):
    options = LaunchOptions(
        log_dir=text, mpi_local_args=tuple(words), explicit=frozenset({"log_dir", "mpi_local_args"})
    )
    assert tomllib.loads(exported(options)) == {"log-dir": text, "mpi-local-args": words}


def test_the_command_line_overrides_the_file(tmp_path):
    file = tmp_path / "o.toml"
    file.write_text('num-instances = 2\nnum-replicas = 8\nverbose = 2\nmpi-global-args = "--tag-output --mca a b"\n')
    options = parse(["--import-config", str(file), "--num-instances=4", "--mpi-global-args=--y", "x"])
    assert (options.num_instances, options.num_replicas, options.verbosity) == (4, 8, 2)
    assert options.mpi_global_args == ("--y",)
    assert parse(["--import-config", str(file), "x"]).mpi_global_args == ("--tag-output", "--mca", "a", "b")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("num-instancs = 2", ["num-instancs: there is no such option", "did you mean 'num-instances'?"]),
        ("num_instances = 2", ["did you mean 'num-instances'?"]),
        ("dry-run = true", ["dry-run: this option cannot be set in a file"]),
        ("num-instances = 2.5", ["num-instances", "whole number", "2.5"]),
        ("num-instances = [1, 2]", ["num-instances", "one value is expected"]),
        ("print-topology = 'perhaps'", ["print-topology", "yes or no"]),
        ("verbose = 'much'", ["verbose", "a whole number"]),
        ("[hosts]\na = 1", ["hosts", "there is no such option"]),
        ("num-instances 2", ["line 1"]),
        ("a\x00b", ["o.toml"]),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path, text, pieces):
    file = tmp_path / "o.toml"
    file.write_text(text)
    lines = mistakes("--import-config", str(file), "x")
    assert len(lines) == 1
    for piece in [f"--import-config {file}", *pieces]:
        assert piece in lines[0]


def test_mistakes_of_file_and_line_are_reported_together(tmp_path):
    (tmp_path / "o.toml").write_text("num-instances = 0\nodd = 1\n")
    lines = mistakes("--import-config", str(tmp_path / "o.toml"), "--num-replicas", "many", "x")
    assert len(lines) == 3


def test_a_file_that_is_not_there(tmp_path):
    assert "cannot be read: No such file" in mistakes("--import-config", str(tmp_path / "none"), "x")[0]
    os.mkfifo(tmp_path / "pipe")
    assert "cannot be read: It is a pipe, no file" in mistakes("--import-config", str(tmp_path / "pipe"), "x")[0]
    assert "cannot be read: Is a directory" in mistakes("--import-config", str(tmp_path), "x")[0]


def test_a_file_is_overwritten_only_when_that_is_asked(launch, tmp_path, capfd, monkeypatch):
    """A job handles the signals of its process permanently, so jobs run in separate processes."""
    monkeypatch.chdir(tmp_path)
    assert launch("--export-config", "o.toml", "--num-replicas", "2", "true").finish()[0] == 0
    file = tmp_path / "o.toml"
    assert "num-replicas = 2\n" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert main(["--num-replicas=4", "--export-config=o.toml", "true"]) == 2
    assert "--export-config o.toml: the file exists" in capfd.readouterr().err
    assert "num-replicas = 2\n" in file.read_text()
    line = ("--num-replicas=4", "--export-config=o.toml", "--overwrite-config=yes", "true")
    assert launch(*line).finish()[0] == 0
    assert "num-replicas = 4\n" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["o.toml"]


def test_a_missing_folder_is_reported(tmp_path, capfd):
    assert main(["--export-config", str(tmp_path / "none/o.toml"), "true"]) == 2
    assert "cannot be written: No such file" in capfd.readouterr().err


@pytest.mark.timeout(20)  # tomllib would take minutes for such keys
@pytest.mark.parametrize(
    "text",
    [
        "num-instances = " + "[" * 100_000,
        ".".join("a" * 100_000) + " = 1",
        " . ".join(['"a"', "'b'"] * 50_000) + " = 1",
        "[" + ".".join("a" * 100_000) + "]",
        "x = {" + ".".join("a" * 100_000) + " = 1}",
    ],
    ids=["values", "a key", "a quoted key", "a table", "a key within"],
)
def test_values_nested_too_deeply_are_a_mistake(text, tmp_path):
    (tmp_path / "o.toml").write_text(text)
    assert "nested too deeply" in mistakes("--import-config", str(tmp_path / "o.toml"), "x")[0]
