"""A warning from within the packages names the line of the program that called them."""

from __future__ import annotations

import linecache

import pytest

from popdist_py.messages.user_warning import warn_user

INSIDE = """
def outer(warn, depth):
    outer(warn, depth - 1) if depth else warn("careful")
"""


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_the_line_is_that_of_the_first_caller_outside(depth: int) -> None:
    module: dict[str, object] = {"__name__": "ipu_emu.hostio.inside"}
    exec(compile(INSIDE, "inside.py", "exec"), module)
    with pytest.warns(UserWarning, match="careful") as warned:
        module["outer"](warn_user, depth)  # type: ignore[operator]
    (warning,) = warned
    assert warning.filename == __file__
    assert linecache.getline(__file__, warning.lineno).strip().startswith('module["outer"]')
