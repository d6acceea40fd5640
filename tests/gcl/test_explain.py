"""``python -m gcl.explain``: its text, its pictures, and its errors for bad input."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.explain import main
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.program.text_diagram import ladder


def explain(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"GCL_OPTIONS": None, **environ})


def test_the_example_of_the_reference() -> None:
    result = explain("--replicas", "16", "--bytes", "51.1e6", "--width", "100")
    assert result.exit_code == 0
    for line in (
        "all_reduce of 51,100,000 bytes (25,550,000 float16) per replica, 16 replicas of 1 IPU",
        "mesh, 1 IPU-Link domain of 16 IPUs, one group",
        "phase 1 of 2: reduce_scatter, bidirectional_ring_pair, over IPU-Links",
        "  because: 51,100,000 bytes, at least 39,845,888 in a ring of 16",
        "  at most 1,088 elements of a fragment on a tile: distributed evenly, selected by switch",
        "  a tile needs 10,880 bytes of buffers and 1,536 of code",
        "  ring 0 2 4 6 8 10 12 14 15 13 11 9 7 5 3 1",
        "  15 exchanges, 47,906,250 bytes sent per replica, fragments of 3,193,750 bytes",
        "phase 2 of 2: all_gather, meet_in_middle_ring, over IPU-Links",
        "  8 exchanges, 51,100,000 bytes sent per replica, fragments of 3,193,750 bytes",
    ):
        assert line in result.output.split("\n")
    assert max(map(len, result.output.split("\n"))) <= 100


def test_a_table_in_full() -> None:
    result = explain(
        "--replicas", "4", "--method", "clockwise_ring", "--collective", "reduce_scatter", "--bytes", "8KiB"
    )
    table = result.output.split("\n\n")[3]
    assert table.split("\n")[:5] == [
        "    replica       0  2  3  1",
        "    clockwise to  2  3  1  0",
        "    exchange 1    1  0  2  3",
        "    exchange 2    3  1  0  2",
        "    exchange 3    2  3  1  0",
    ]


def test_ladders() -> None:
    assert ladder(Fabric(8)).split("\n") == [
        "rail 1  1 - 3 - 5 - 7",
        "        |   |   |   |",
        "rail 0  0 - 2 - 4 - 6",
    ]
    assert ladder(Fabric(3, 4, topology=Topology.TORUS)).split("\n") == [
        "rail 1    1 -  3 -  5 -  7 -  9 - 11",
        "          |    |    |    |    |    |",
        "rail 0    0 -  2 -  4 -  6 -  8 - 10",
        "replica   0    0    1    1    2    2",
        "loop-back cables join the ends of each rail",
    ]
    twist = Fabric(8, topology=Topology.TORUS, configuration=LinkConfiguration.BARLEY_TWIST)
    assert ladder(twist).split("\n")[1] == "        X   X   X   X"
    assert ladder(Fabric(64), 40).split("\n")[0] == "rail 1   1 -  3 -  5 -  7 - ... - 63"


def test_four_phases_over_two_domains() -> None:
    result = explain("--replicas", "32", "--num-ilds", "2")
    heads = [line for line in result.output.split("\n") if line.startswith("phase")]
    assert [head.split(", ")[0] for head in heads] == [
        "phase 1 of 4: reduce_scatter",
        "phase 2 of 4: reduce_scatter",
        "phase 3 of 4: all_gather",
        "phase 4 of 4: all_gather",
    ]
    assert [head.rpartition(" over ")[2] for head in heads] == ["IPU-Links", "GW-Links", "GW-Links", "IPU-Links"]


def test_the_fabric_has_the_fewest_domains_that_hold_the_ipus() -> None:
    assert "2 IPU-Link domains of 64 IPUs" in explain("--replicas", "32", "--ipus-per-replica", "4").output


def test_the_method_is_that_of_gcl_options_unless_it_is_given() -> None:
    options = '{"method": "anticlockwise_ring"}'
    assert "reduce_scatter, anticlockwise_ring" in explain(GCL_OPTIONS=options).output
    given_ = explain("--method", "clockwise_ring", GCL_OPTIONS=options).output
    assert "reduce_scatter, clockwise_ring" in given_
    bad = explain(GCL_OPTIONS='{"metod": 1}')
    assert bad.exit_code == 2
    assert "GCL_OPTIONS has an unknown option 'metod'" in bad.output


def test_without_pairs_there_is_a_program_and_no_price() -> None:
    result = explain("--replicas", "3")
    assert result.exit_code == 0
    assert "modelled time: none (3 IPUs in one domain" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--replicas", "16"),
        ("--replicas", "8", "--ipus-per-replica", "4", "--topology", "torus"),
        ("--replicas", "8", "--topology", "barley_twist"),
        ("--replicas", "320", "--num-ilds", "5"),
        ("--replicas", "1"),
        ("--replicas", "3"),
        ("--replicas", "4", "--bytes", "0"),
        ("--replicas", "6", "--method", "broadcast"),
        ("--replicas", "8", "--collective", "all_to_all", "--group", "orthogonal:4"),
        ("--replicas", "64", "--topology", "barley_twist", "--method", "quad_directional_ring"),
    ],
)
def test_pictures_are_well_formed_and_stay_inside_their_frame(arguments: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    result = explain(*arguments, "--svg", str(path))
    assert result.exit_code == 0, result.output
    assert result.output.endswith(f"picture: {path}\n")
    root = ElementTree.parse(path).getroot()
    width, height = (float(root.get(name, "nan")) for name in ("width", "height"))
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if box.get("x"):
            x, y, w, h = (float(box.get(name, "nan")) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height
    assert path.stat().st_size < 4_000_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.svg"]


@pytest.mark.parametrize(
    ("arguments", "ladders"),
    [
        ("--replicas 64 --topology barley_twist --method quad_directional_ring", 4),
        ("--replicas 128 --num-ilds 4 --ipus-per-replica 2 --topology torus", 3),
        ("--replicas 16 --ipus-per-replica 4 --topology torus", 1),
    ],
)
def test_large_pictures_stay_small(arguments: str, ladders: int, tmp_path: Path) -> None:
    """Only the first and last rows and columns are drawn; four rings have a ladder each."""
    path = tmp_path / "picture.svg"
    assert explain(*arguments.split(), "--svg", str(path)).exit_code == 0
    assert path.stat().st_size < 300_000
    texts = [e.text for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("rail 1") == ladders
    assert "..." in texts


def test_a_picture_shows_every_transfer(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    explain("--replicas", "4", "--method", "clockwise_ring", "--bytes", "8000", "--svg", str(path))
    titles = [e.text or "" for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}title")]
    sends = [title for title in titles if title.startswith("clockwise: ")]
    assert len(sends) == 2 * 3 * 4
    assert sends[0] == "clockwise: replica 0 sends fragment 1 to replica 2, 2,000 bytes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bytes", "abc"), "--bytes abc is not valid; write a number up to 1e15, such as 51e6, 64kB or 1GiB"),
        (("--bytes", "-1"), "write a number"),
        (("--bytes", "1e99"), "write a number"),
        (("--method", "ring"), "method 'ring' is unknown; use auto, clockwise_ring"),
        (("--method", "auto,auto,auto"), "3 methods"),
        (("--replicas", "0"), "0 is not in the range"),
        (("--ipus-per-replica", "3"), "Odd sized replicas are unsupported"),
        (("--ipus-per-replica", "-2"), "use 1, 2, 4, 8 or 16"),
        (("--topology", "donut"), "is not one of 'mesh', 'torus', 'barley_twist'"),
        (("--topology", "barley_twist", "--ipus-per-replica", "2"), "Unsupported GCL link configuration BarleyTwist"),
        (("--num-ilds", "3"), "16 is not divisible by 3"),
        (("--group", "consecutive:5"), "16 is not divisible by 5"),
        (("--group", "some"), "write all, consecutive:K or orthogonal:K"),
        (("--method", "quad_directional_ring"), "it needs barley_twist"),
        (("--svg", "/nonexistent/x.svg"), "--svg /nonexistent/x.svg cannot be written"),
        (("--svg", ""), "--svg '' is not valid; write the name of a file"),
        (("--replicas", "4096"), "4096 is not in the range 1<=x<=1024"),
        (("--replicas", "1024", "--ipus-per-replica", "16"), "use at most 256 replicas"),
        (("--replicas", "1024", "--num-ilds", "1024"), "1024 is not in the range 1<=x<=64"),
        (("--replicas", "512", "--collective", "all_to_all"), "use fewer replicas or smaller groups"),
        (("--frobnicate",), "No such option"),
    ],
)
def test_bad_input_is_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    result = explain(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert "exchange 1" not in result.output  # the path is checked before anything is drawn


def test_all_mistakes_are_reported_together() -> None:
    result = explain("--bytes", "x", "--method", "y", "--num-ilds", "3", "--svg", "/nonexistent/x.svg")
    assert result.exit_code == 2
    for what in ("--bytes x", "method 'y'", "16 is not divisible by 3", "there is no folder /nonexistent"):
        assert what in result.output


@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 4, 8, 16, 3]),
    st.sampled_from(["mesh", "torus", "barley_twist"]),
    st.integers(1, 4),
    st.sampled_from(["auto", "clockwise_ring", "quad_directional_ring", "broadcast"]),
    st.sampled_from(["0", "1", "1e3", "51e6"]),
)
@settings(deadline=None, max_examples=40)
def test_any_combination_works_or_says_why(
    replicas: int, ipus: int, topology: str, ilds: int, method: str, size: str
) -> None:
    result = explain(
        *("--replicas", str(replicas), "--ipus-per-replica", str(ipus), "--topology", topology),
        *("--num-ilds", str(ilds), "--method", method, "--bytes", size),
    )
    assert result.exit_code in (0, 2), result.exception
    assert ("modelled time" if result.exit_code == 0 else "Error: ") in result.output


def test_lines_are_broken_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--replicas", "16", "--bytes", "51e6")
    data = explain(*arguments).output
    assert max(map(len, data.splitlines())) > 80
    monkeypatch.setattr("gcl.explain.terminal_width", lambda: 80)
    shown = explain(*arguments).output
    assert max(map(len, shown.splitlines())) <= 80
    assert "all_reduce of 51,000,000 bytes" in shown


def test_it_runs_as_a_module_and_its_help_teaches() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gcl.explain", "--help"], capture_output=True, text=True, timeout=250, check=True
    )
    for word in ("Examples", "--replicas 16 --bytes 51e6", "How to read a table", "modelled"):
        assert word in done.stdout
    assert "three phases" not in done.stdout  # over several domains four are printed
