"""Tag colours: the colour of each instance, when there are none, and how distinguishable they are for all users."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poprun_py.output.tag_colors import PALETTE, tag_colors
from poprun_py.output.tagged_output import TaggedOutput, tag
from poprun_py.wire.messages import STDERR, STDOUT, STREAMS

#: Linear RGB as seen without red cones, or without green cones (Machado, Oliveira, Fernandes 2009).
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = XYZ.sum(1)


def linear(number: int) -> np.ndarray:
    """Linear RGB of an entry of the 256-colour table's cube."""
    levels = np.array([0, 95, 135, 175, 215, 255]) / 255
    cube = number - 16
    srgb = levels[[cube // 36, cube // 6 % 6, cube % 6]]
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB."""
    ratio = np.clip(XYZ @ np.clip(rgb, 0, 1), 0, None) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_are_distinguishable(vision):
    seen = [lab(VISION[vision] @ linear(number)) for number in PALETTE]
    assert min(np.linalg.norm(colour - other) for colour, other in itertools.combinations(seen, 2)) > 29.9


@pytest.mark.parametrize("number", PALETTE)
def test_each_colour_can_be_read_on_black_and_on_white(number):
    luminance = XYZ[1] @ linear(number)
    assert (luminance + 0.05) / 0.05 > 3
    assert 1.05 / (luminance + 0.05) > 3


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, b"\x1b[38;5;69m"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, b"\x1b[38;5;69m"),
        ({"TERM": "vt220"}, b"\x1b[36m"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, b"\x1b[38;5;69m"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, None),
        ({"TERM": "dumb", "COLORTERM": "1"}, None),
        ({"COLORTERM": "1"}, None),
    ],
)
def test_the_terminal_and_no_color_decide(environ, expected):
    assert next(iter(tag_colors(environ)), None) == expected


def test_instances_take_the_colours_in_turn():
    colors = (b"<a>", b"<b>")
    tags = [tag(rank, STDERR, colors) for rank in range(3)]
    assert tags == [b"%s[1,%d]<stderr>:\x1b[39m" % (b"<%c>" % name, rank) for rank, name in enumerate(b"aba")]


def shown(*, instances: int = 2, only: int | None = None, live: tuple[int, ...]) -> dict[int, bytes]:
    """The output on each stream if the last instance writes x to both."""
    said = dict.fromkeys(STREAMS, b"")

    def to(stream: int):
        return lambda lines, done: said.update({stream: said[stream] + lines})

    output = TaggedOutput(instances, only=only, stdout=to(STDOUT), stderr=to(STDERR), live=live, colors=[b"<a>"])
    for stream in STREAMS:
        output.write(instances - 1, stream, b"x\n", lambda: None)
    return said


def test_only_the_stream_that_is_a_terminal_has_colours():
    assert shown(live=(STDERR,)) == {STDOUT: b"[1,1]<stdout>:x\n", STDERR: b"<a>[1,1]<stderr>:\x1b[39mx\n"}


@pytest.mark.parametrize("alone", [{"instances": 1}, {"only": 1}])
def test_one_instance_alone_needs_no_colour(alone):
    assert not any(b"<a>" in lines for lines in shown(live=(STDOUT, STDERR), **alone).values())
