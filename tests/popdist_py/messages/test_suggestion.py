"""Suggestions: the intended name in any letter case, and none if no name is similar."""

import click
import pytest

from popdist_py.messages.named_choice import NamedChoice
from popdist_py.messages.suggestion import did_you_mean


@pytest.mark.parametrize(
    ("name", "hint"),
    [("maen", "; did you mean 'Mean'?"), ("SUMM", "; did you mean 'Sum'?"), ("", ""), (3, ""), ("median filter", "")],
)
def test_the_closest_name(name: object, hint: str) -> None:
    assert did_you_mean(name, ["Mean", "Sum", "NoReduction"]) == hint


def test_choices_of_commands() -> None:
    kind = NamedChoice(["grouped", "interleaved"])
    assert kind.convert("grouped", None, None) == "grouped"
    with pytest.raises(
        click.BadParameter, match=r"is not one of 'grouped', 'interleaved'; did you mean 'grouped'[?]"
    ):
        kind.convert("gruoped", None, None)
    with pytest.raises(click.BadParameter, match=r"is not one of 'grouped', 'interleaved'$"):
        kind.convert("x", None, None)
