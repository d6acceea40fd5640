"""Host list: ranges, files, slots, and mistakes."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from poprun_py.errors import UsageError
from poprun_py.options.host_list import Host, expanded, from_file, from_list


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h0", "h0"),
        ("h0,h1", "h0 h1"),
        (" h0 , h1,", "h0 h1"),
        ("host[0-2,4]", "host0 host1 host2 host4"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1]x,m", "n1x m"),
        ("r[1-2]n[3,5]", "r1n3 r1n5 r2n3 r2n5"),
        ("10.1.67.150,gc-poplar-02.example", "10.1.67.150 gc-poplar-02.example"),
        ("tux[1-3,7],login", "tux1 tux2 tux3 tux7 login"),
    ],
)
def test_lists_and_ranges(text, names):
    assert list(expanded(text)) == names.split()


@pytest.mark.skipif(not shutil.which("scontrol"), reason="needs Slurm's scontrol")
@pytest.mark.parametrize("text", ["n[0-2,4]", "a[08-11],b", "r[1-2]n[3,5]"])
def test_slurm_agrees(text, tmp_path):
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("ClusterName=c\nSlurmctldHost=localhost\n")
    environment = os.environ | {"SLURM_CONF": str(configuration)}
    command = ["scontrol", "show", "hostnames", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert list(expanded(text)) == done.stdout.split()


def test_slots_are_the_most_a_host_takes():
    assert from_list("h0:2,h[1-2]:4", source="x") == (Host("h0", 2), Host("h1", 4), Host("h2", 4))


def test_a_file_in_the_dialects_of_mpich_open_mpi_and_poprun(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# a comment\nh0\n\nh1:2  # MPICH\nh2 slots=3 max_slots=4\nn[0-1] slots=5\n")
    expected = (Host("h0"), Host("h1", 2), Host("h2", 3), Host("n0", 5), Host("n1", 5))
    assert from_file(str(file), source="x") == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no host is named"),
        (",", "no host is named"),
        ("h0,h0", "h0 is named more than once"),
        ("n[0-2", "a bracket is not closed"),
        ("n0-2]", "a bracket is not closed"),
        ("n[2-0]", "'2-0' is not a range"),
        ("n[a]", "'a' is not a range"),
        ("n[]", "'' is not a range"),
        ("n[0-99999999]", "more than 65536 hosts"),
        ("n[0-999]m[0-999]", "more than 65536 hosts"),
        ("-oProxyCommand=x", "not a host name"),
        ("$HOSTS", "not a host name"),
        ("a b", "not a host name"),
        ("h0:0", "a host with no slots"),
    ],
)
def test_mistakes_are_reported(text, said):
    with pytest.raises(UsageError, match="^--host x: .*" + said):
        from_list(text, source="--host x")


def test_mistakes_in_a_file_are_reported_with_the_line(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("h0\nh1 port=7\n")
    with pytest.raises(UsageError, match=r"^f, line 2: 'port=7' is not understood"):
        from_file(str(file), source="f")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        from_file(str(tmp_path / "none"), source="f")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="cannot be read: It is a pipe, no file"):
        from_file(str(tmp_path / "pipe"), source="f")


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"f: .*16,777,216"):
        from_file("/dev/zero", source="f")
