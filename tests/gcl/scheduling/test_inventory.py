"""Inventory: each option of GCL_OPTIONS, and each variable, has an effect that a test sees, or a warning names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gcl.scheduling.options import UNUSED_VARIABLES, Options
from tests.helpers.inventory_page import assert_counts

TESTS = Path(__file__).parents[1]

_NAMED = "test_decision_log.py::test_variables_and_options_without_a_meaning_here_are_named"

#: Option or variable -> the test that sees its effect or its warning.
SHOWN = {
    "method": "test_decision_log.py::test_a_named_method_is_logged_as_requested",
    "maxBytesPerTile": "scheduling/program/test_exchange_limit.py"
    "::test_exchanges_respect_the_limit_and_results_are_unchanged",
    "syncful.useOptimisedLayout": "cost/test_program_cost.py::test_the_plain_layout_has_fewer_cycles_and_more_memory",
    "syncful.useForwardingToSupportStridedGroups": "scheduling/program/test_forwarding.py::test_when_it_is_used",
    "useReplicatedImplementation": _NAMED,
    "useSynclessCollectives": "literal/test_literal_path.py::test_collectives_without_sync_are_reported_as_removed",
    "GCL_LOG_LEVEL": "test_decision_log.py::test_levels",
    "GCL_NUM_IO_TILES": "cost/test_program_cost.py::test_io_tiles_take_longer_the_fewer_they_are",
    "GCL_REAL_COLLECTIVES": "literal/test_literal_path.py::test_real_collectives_run_the_programs_that_gcl_would",
    **dict.fromkeys(UNUSED_VARIABLES, _NAMED),
}


def test_every_option_has_a_row() -> None:
    names = [line.partition(" = ")[0] for line in str(Options()).splitlines()]
    assert sorted(SHOWN) == sorted([*names, *UNUSED_VARIABLES])
    said = sum(test == _NAMED for test in SHOWN.values())
    assert_counts("options and variables of GCL", len(SHOWN) - said, 0, said)


@pytest.mark.parametrize("shown", sorted(set(SHOWN.values())))
def test_a_row_names_a_test(shown: str) -> None:
    file, _, name = shown.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text()
