"""Parameter names: the ids of parametrised tests."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest

from tests.helpers.parameter_names import parameter_name


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Job:
    replicas: int
    shards: int = 1
    names: tuple[str, ...] = ()
    hidden: object = field(default=0, repr=False)


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ([1, (2, 3), []], "1 [2, 3] []"),
        ({"a": 1, "b": Colour.RED}, "a=1 b=RED"),
        ({3, 1, 2}, "1 2 3"),
        (np.zeros((2, 3), np.float16), "float16[2x3]"),
        ([np.float32, np.add], "float32 add"),
        (Job(2), "Job replicas=2"),
        (Job(2, names=("a", "b"), hidden=1), "Job replicas=2 names=[a, b]"),
        (Opaque(), "Opaque"),
        ("[" * 1000 + "\n", "[*1000\\n"),
        ("ab" * 50, "ab" * 28 + "a..."),
        (b"a\n" * 50, "a\\n" * 19 + "..."),
        (range(3), "range(0, 3)"),
        *[(value, None) for value in (None, True, 2, 2.5, "short", b"short", Colour.RED, Opaque, len)],
    ],
)
def test_values_are_named_by_their_content(value: object, name: str | None) -> None:
    assert parameter_name(value) == name
