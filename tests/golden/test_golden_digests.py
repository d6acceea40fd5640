"""Golden digests: every program gives the losses, results and weights of the repository on any processor.

If this fails after a change of the order or the rounding of some arithmetic that is intended, write the new digests
with ``scripts/same-bits --update``, and say in the commit why they changed. If nothing was meant to change, or on a
processor that nobody has tried, ``scripts/same-bits --where PROGRAM SETTING`` finds the first op that differs.
"""

import pytest

from tests.golden.catalogue import DIGESTS, PROGRAMS, golden_digests

GOLDEN = golden_digests()
#: How to go on where a digest differs.
ADVICE = (
    "where this change of numerics is intended and all processors agree (scripts/same-bits), write the new digests "
    "with scripts/same-bits --update and say why in the commit; else --where names the op that differs"
)


NAMES = [
    pytest.param(name, marks=[pytest.mark.torch] * ("torch" in program.needs)) for name, program in PROGRAMS.items()
]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_the_digests_of_the_repository(name):
    program = PROGRAMS[name]
    if program.missing:
        pytest.skip(f"{', '.join(program.missing)}: absent; scripts/test --with-torch and --with-tensorflow add them")
    assert program.run() == GOLDEN[name], ADVICE


def test_the_file_has_all_programs_and_no_others_in_less_than_20_kilobytes():
    assert list(GOLDEN) == list(PROGRAMS)
    assert DIGESTS.stat().st_size < 20_000
