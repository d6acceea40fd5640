"""CompileRequest: the options of a command mean what the same options of a PopART session mean."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_emu import popart
from ipu_emu.cli.commands.compile_model import OPTIMISERS, CompileRequest
from ipu_emu.errors import EmulatorError

RATE = {"defaultLearningRate": (0.1, False)}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("sgd", popart.SGD(RATE)),
        ("momentum", popart.SGD({**RATE, "defaultMomentum": (0.9, True)})),
        ("adam", popart.Adam(RATE)),
        ("lamb", popart.Adam(RATE, mode=popart.AdamMode.Lamb)),
    ],
)
def test_optimisers_have_the_defaults_of_popart(name: str, same: Any) -> None:
    assert OPTIMISERS[name] == same.plan


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"schedule": "popart"}, "a pipeline needs more than one IPU per replica; add --ipus"),
        (
            {"schedule": "grouped", "ipus": 2},
            "the grouped schedule trains with gradient accumulation only; add --accumulation, or use "
            "--schedule popart",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_in_words_of_the_command(asked: dict[str, Any], text: str) -> None:
    with pytest.raises(EmulatorError) as error:
        CompileRequest("mlp", **asked).compiled_until("prune")
    assert error.value.args[0] == text
