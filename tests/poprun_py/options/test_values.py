"""Values of options: the values that each reader accepts, and its error for others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from poprun_py.options import values

either = values.choice("auto", "mpi", "slurm")


@pytest.mark.parametrize(
    ("read", "word", "value"),
    [
        *[(values.boolean, word, True) for word in ("yes", "ON", "True", "1")],
        *[(values.boolean, word, False) for word in ("no", "off", "FALSE", "0")],
        (either, "MPI", "mpi"),
        (values.count, "1", 1),
        (values.index, "0", 0),
        (values.port, "65535", 65535),
        (values.seconds, "0", 0.0),
        (values.seconds, "1e3", 1000.0),
        (values.shell_words, "-x 'a b' c\\ d", ("-x", "a b", "c d")),
        (values.shell_words, "", ()),
        (values.local_words, " 2 :-x A=B:C", (2, ("-x", "A=B:C"))),
        (values.text, " ", " "),
    ],
)
def test_valid_words_are_read(read: Callable[[str], object], word: str, value: object) -> None:
    assert read(word) == value


@pytest.mark.parametrize(
    ("read", "word", "expected"),
    [
        (values.boolean, "2", "yes or no is expected"),
        (either, "pbs", "auto, mpi or slurm is expected"),
        (values.count, "0", "at least 1 is needed"),
        (values.index, "-1", "counting starts at 0"),
        *[(values.count, word, "a whole number is expected") for word in ("", "1.0", "+1", "--1", "²")],
        (values.count, "1" * 10, "a number of at most 9 digits is expected"),
        *[(values.port, word, "a port is a number from 1 to 65535") for word in ("0", "65536", "-1")],
        *[(values.seconds, word, "a number of seconds is expected") for word in ("-1", "nan", "inf", "1e9", "soon")],
        (values.shell_words, "'a", "a quotation mark is not closed"),
        (values.local_words, "-x A=B", "the index of an instance, a colon and the options are expected"),
        (values.local_words, "a:b", "a whole number is expected"),
        (values.text, "", "a value is needed"),
        (values.text, "a\0b", "a value without NUL is needed"),
    ],
)
def test_errors_name_what_is_expected(read: Callable[[str], object], word: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read(word)
