"""Options: GCL_OPTIONS and the other GCL variables."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.errors import ArgumentError
from gcl.scheduling.methods import Method
from gcl.scheduling.options import LogLevel, Options

NAMES = [
    "method",
    "useReplicatedImplementation",
    "maxBytesPerTile",
    "useSynclessCollectives",
    "syncful.useOptimisedLayout",
    "syncful.useForwardingToSupportStridedGroups",
]


def options_of(text: str) -> Options:
    """Those of GCL_OPTIONS alone."""
    return Options.from_environ({"GCL_OPTIONS": text})


def test_defaults() -> None:
    assert Options.from_environ({}) == options_of("{}") == Options()
    assert options_of("  ") == Options()
    assert Options().use_optimised_layout


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"method": "broadcast"}, Options(method=(Method.BROADCAST,))),
        (
            {"method": "clockwise_ring, meet_in_middle_ring"},
            Options(method=(Method.CLOCKWISE_RING, Method.MEET_IN_MIDDLE_RING)),
        ),
        ({"method": ["auto", "broadcast"]}, Options(method=(Method.AUTO, Method.BROADCAST))),
        ({"useReplicatedImplementation": True}, Options(use_replicated_implementation=True)),
        ({"useReplicatedImplementation": "true"}, Options(use_replicated_implementation=True)),
        ({"maxBytesPerTile": 40000}, Options(max_bytes_per_tile=40000)),
        ({"maxBytesPerTile": "40000"}, Options(max_bytes_per_tile=40000)),
        ({"useSynclessCollectives": "auto"}, Options(use_syncless_collectives=None)),
        ({"useSynclessCollectives": "false"}, Options(use_syncless_collectives=False)),
        ({"syncful.useOptimisedLayout": "false"}, Options(use_optimised_layout=False)),
        ({"syncful": {"useOptimisedLayout": False}}, Options(use_optimised_layout=False)),
        (
            {"syncful.useForwardingToSupportStridedGroups": True},
            Options(use_forwarding_to_support_strided_groups=True),
        ),
    ],
)
def test_every_option(given_: dict[str, object], expected: Options) -> None:
    assert options_of(json.dumps(given_)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"method": "ring"}', "method 'ring' is unknown; use auto, clockwise_ring"),
        ('{"method": 3}', "GCL_OPTIONS method is 3; it must be the name of a method"),
        ('{"method": []}', "must be the name of a method, or a list of names"),
        ('{"maxBytesPerTile": -1}', "must be a whole number of at least 1"),
        ('{"maxBytesPerTile": 0}', "must be a whole number of at least 1"),
        ('{"maxBytesPerTile": true}', "must be a whole number of at least 1"),
        ('{"maxBytesPerTile": 1.5}', "must be a whole number of at least 1"),
        ('{"maxBytesPerTile": "many"}', "must be a whole number of at least 1"),
        ('{"useReplicatedImplementation": 1}', "must be true or false"),
        ('{"useSynclessCollectives": "maybe"}', "must be true, false or auto"),
        ('{"method": "auto", "method": "auto"}', "GCL_OPTIONS has method twice"),
        ('{"syncful.useOptimisedLayout": true, "syncful": {"useOptimisedLayout": true}}', "twice"),
        ("[1]", "it must be a JSON object of options"),
        ("{", "GCL_OPTIONS is not JSON"),
        ("[" * 100_000, "GCL_OPTIONS is not JSON"),
        ('{"syncful": true}', "GCL_OPTIONS syncful is True; it must be an object of its options"),
        ('{"syncful": 3}', "GCL_OPTIONS syncful is 3; it must be an object of its options"),
        ('{"syncful": {"a": 1}}', "unknown option 'syncful.a'"),
        ('{"nonsense": {}}', "unknown option 'nonsense'"),
        ('{"method": {}}', "GCL_OPTIONS method is {}; it must be the name of a method"),
        ('{"method": {"auto": 1}}', "GCL_OPTIONS method is {'auto': 1}; it must be the name of a method"),
    ],
)
def test_faults(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        options_of(text)
    assert message in str(caught.value)


def test_the_error_of_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentError) as caught:
        options_of('{"syncful.useOptimizedLayout": true}')
    assert str(caught.value) == (
        f"GCL_OPTIONS has an unknown option 'syncful.useOptimizedLayout'; there are {', '.join(NAMES)}"
        "; did you mean 'syncful.useOptimisedLayout'?"
    )


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(ArgumentError) as caught:
        Options.from_environ(
            {"GCL_OPTIONS": '{"a": 1, "maxBytesPerTile": "b"}', "GCL_LOG_LEVEL": "LOUD", "GCL_NUM_IO_TILES": "31"}
        )
    for what in ("unknown option 'a'", "maxBytesPerTile", "GCL_LOG_LEVEL is 'LOUD'", "GCL_NUM_IO_TILES is '31'"):
        assert what in str(caught.value)


@pytest.mark.parametrize("level", list(LogLevel))
def test_log_level(level: LogLevel) -> None:
    assert Options.from_environ({"GCL_LOG_LEVEL": level.lower()}).log_level is level


@pytest.mark.parametrize(
    ("tiles", "fine"), [(30, 0), (32, 1), (33, 0), (192, 1), (1470, 1), (1472, 0), ("x", 0), (-32, 0)]
)
def test_io_tiles(tiles: object, fine: int) -> None:
    environ = {"GCL_NUM_IO_TILES": str(tiles)}
    if fine:
        assert Options.from_environ(environ).num_io_tiles == tiles
    else:
        with pytest.raises(ArgumentError, match="must be even, at least 32 and below the 1472 tiles"):
            Options.from_environ(environ)
    with pytest.raises(ArgumentError, match="below the 1216 tiles"):
        Options.from_environ({"GCL_NUM_IO_TILES": "1216"}, tiles_per_ipu=1216)


def test_they_print_under_their_own_names() -> None:
    lines = str(options_of('{"syncful.useOptimisedLayout": false}')).split("\n")
    assert lines[0] == "method = auto"
    assert "syncful.useOptimisedLayout = false" in lines
    assert [line.split(" = ")[0] for line in lines[:6]] == NAMES


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "syncful", ""]), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=40)
@given(JSON.map(json.dumps) | st.text())
def test_anything_else_is_one_clear_error(text: str) -> None:
    fault = ""
    try:
        options = options_of(text)
    except ArgumentError as error:
        fault = str(error)
    assert fault.startswith("GCL_OPTIONS") or str(options)
