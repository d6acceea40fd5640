"""Lines are broken between words where a terminal shows them, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from gcl.drawing.terminal_text import NARROW, fitted, terminal_width

WORDS = "three short words and-one-that-is-long"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        (WORDS, None, WORDS),
        (WORDS, 80, WORDS),
        (WORDS, 21, "three short words\n  and-one-that-is-long"),
        (f"    {WORDS}", 26, "    three short words\n      and-one-that-is-long"),
        (f"short\n\n{WORDS}\n", 21, "short\n\nthree short words\n  and-one-that-is-long\n"),
        ("a  b   aligned", 20, "a  b   aligned"),
        ("  a  b   some words in the last column", 33, "  a  b   some words in the last\n         column"),
        ("a far column         and the rest of it", 36, "a far column         and the rest of\n  it"),
        (f"a  {'x' * 30} y", 30, f"a\n  {'x' * 30}\n  y"),
    ],
)
def test_long_lines_are_broken_between_words(text: str, width: int | None, expected: str) -> None:
    assert fitted(text, width) == expected


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert fitted(f"see {'x' * 40}", 20) == f"see\n  {'x' * 40}"


@pytest.mark.parametrize(
    ("terminal", "columns", "width"), [(False, "70", None), (True, "70", 70), (True, "", NARROW)]
)
def test_only_a_terminal_has_a_width(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, columns: str, width: int | None
) -> None:
    class Screen:
        def isatty(self) -> bool:
            return terminal

        def fileno(self) -> int:
            raise OSError("no screen of this process")

    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setattr(sys, "__stdout__", Screen())
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width
