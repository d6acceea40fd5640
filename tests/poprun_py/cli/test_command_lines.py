"""Command lines of PopRun from public repositories: accepted, or refused with a suggestion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from poprun_py.cli import main

ENTRIES = json.loads((Path(__file__).parents[1] / "data/poprun_command_lines.json").read_text())["entries"]

#: The values of variables in the scripts.
MEANT = {
    "$HOSTS": "localhost",
    "$hosts": "localhost",
    "$your_host": "localhost",
    "$INSTANCES": "2",
    "$REPLICAS": "4",
    "$MPI_GLOBAL_ARGS": "--tag-output",
    "$MPI_LOCAL_ARGS": "-x PATH",
    "X": "2",
    "Y": "4",
    "Z": "1",
    "NUM_INSTANCES": "2",
    "NUM_REPLICAS": "4",
    "time=$(date": "time=20231122104500",
}

#: Faulty words, and the message about them.
CORRECTIONS = {"--num=ilds": "did you mean --num-ilds?"}


def command_line(entry: dict[str, object]) -> list[str]:
    """The words that the shell would pass."""
    words = [word for word in entry["launcher_argv"][1:] if word not in ("$MPI_SETTINGS", "+%Y%m%d%H%M%S)")]
    return [MEANT.get(word, expanded(word)) for word in words]


def expanded(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and value in MEANT:
        return f"{option}={MEANT[value]}"
    return re.sub(r"\$\{?(\w+)\}?", lambda match: match[1].lower(), word)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["source"].rpartition("/")[2])
def test_a_real_command_line(entry, capsys, tmp_path):
    line = command_line(entry)
    faulty = [word for word in line if word in CORRECTIONS]
    code = main(["--dry-run", *line, "python", "train.py"])
    captured = capsys.readouterr()
    if faulty:
        assert code == 2
        assert captured.err.count("\n") == len(faulty)
        assert all(word in captured.err and CORRECTIONS[word] in captured.err for word in faulty)
    else:
        assert (code, captured.err) == (0, "")
        assert "python train.py" in captured.out
    assert list(tmp_path.iterdir()) == []


def test_the_file_has_both_kinds():
    faulty = [entry for entry in ENTRIES if set(command_line(entry)) & set(CORRECTIONS)]
    assert (len(ENTRIES), len(faulty)) == (39, 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--ipus-per replica=4 python", "did you mean --ipus-per-replica=4?"),
        ("--num-instances=4 -x PATH python", "-x is an option of mpirun; use --mpi-local-args="),
        ("--mca btl_tcp_if_include eno1 python", "--mca is an option of mpirun; use --mpi-global-args="),
        ("-np 4 python", "-np is an option of mpirun; use --num-instances 4"),
        ("--nproc_per_node=4 python", "--nproc_per_node is an option of torchrun; use --num-instances 4"),
        ("--num-instances --num-replicas=4 python", "--num-replicas follows; is a variable of the shell empty?"),
        ("--vipu-partition= python", "--vipu-partition: a value is needed, found nothing"),
    ],
)
def test_typical_mistakes_of_published_command_lines(line, said, capsys):
    assert main(["--dry-run", *line.split()]) == 2
    assert said in capsys.readouterr().err
