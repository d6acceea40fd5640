"""Environment: the instance reads the values that the launcher writes."""

import pytest

from popdist_py import Layout, PopdistEnvironmentError
from popdist_py.environment import EXECUTABLE_CACHE_PATH, NAMES, Environment, is_set


def test_names_are_popruns_in_its_order() -> None:
    assert list(NAMES.values()) == [
        "POPDIST_NUM_TOTAL_REPLICAS",
        "POPDIST_NUM_IPUS_PER_REPLICA",
        "POPDIST_NUM_LOCAL_REPLICAS",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
        "POPDIST_REPLICA_INDEX_OFFSET",
        "POPDIST_LOCAL_INSTANCE_INDEX",
    ]
    assert EXECUTABLE_CACHE_PATH == "POPDIST_EXECUTABLE_CACHE_PATH"


def test_without_a_launcher() -> None:
    environment = Environment.from_environ({})
    assert not is_set({})
    assert environment == Environment()
    assert (environment.num_total_replicas, environment.num_local_replicas) == (1, 1)
    assert (environment.num_instances, environment.instance_index) == (1, 0)
    assert (environment.num_ipus_per_replica, environment.replica_index_offset) == (1, 0)


#: total, instances, instance -> local, offset (popdist.md, section 2)
TABLE = [
    (8, 4, 3, 2, 6),
    (12, 3, 0, 4, 0),
    (12, 3, 2, 4, 8),
    (6, 6, 5, 1, 5),
    (16, 1, 0, 16, 0),
]


@pytest.mark.parametrize(("total", "instances", "instance", "local", "offset"), TABLE)
def test_the_table_of_the_reference(total: int, instances: int, instance: int, local: int, offset: int) -> None:
    layout = Layout.uniform(num_replicas=total, num_instances=instances)
    written = Environment.of_instance(layout, instance, ipus_per_replica=2, local_instance_index=1).to_environ()
    assert written == {
        "POPDIST_NUM_TOTAL_REPLICAS": str(total),
        "POPDIST_NUM_IPUS_PER_REPLICA": "2",
        "POPDIST_NUM_LOCAL_REPLICAS": str(local),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(offset),
        "POPDIST_LOCAL_INSTANCE_INDEX": "1",
    }
    read = Environment.from_environ(written)
    assert is_set(written)
    assert (read.num_instances, read.instance_index) == (instances, instance)


def test_instances_with_different_numbers_of_replicas_have_no_index() -> None:
    environment = Environment.of_instance(Layout.of((3, 1, 2)), 1)
    assert Environment.from_environ(environment.to_environ()) == environment
    assert (environment.num_local_replicas, environment.replica_index_offset) == (1, 3)
    for name in ("num_instances", "instance_index"):
        with pytest.raises(PopdistEnvironmentError, match="POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=0"):
            getattr(environment, name)


#: Invalid variables -> the error; other variables are absent.
MALFORMED = [
    ({"NUM_TOTAL_REPLICAS": "four"}, "POPDIST_NUM_TOTAL_REPLICAS='four' is not a whole number"),
    ({"NUM_TOTAL_REPLICAS": ""}, "POPDIST_NUM_TOTAL_REPLICAS='' is not a whole number"),
    ({"NUM_TOTAL_REPLICAS": "4.0"}, "POPDIST_NUM_TOTAL_REPLICAS='4.0' is not a whole number"),
    ({"NUM_TOTAL_REPLICAS": "0"}, "POPDIST_NUM_TOTAL_REPLICAS=0 is below 1"),
    ({"NUM_LOCAL_REPLICAS": "-2"}, "POPDIST_NUM_LOCAL_REPLICAS=-2 is below 1"),
    ({"NUM_IPUS_PER_REPLICA": "0"}, "POPDIST_NUM_IPUS_PER_REPLICA=0 is below 1"),
    ({"REPLICA_INDEX_OFFSET": "-1"}, "POPDIST_REPLICA_INDEX_OFFSET=-1 is below 0"),
    ({"NUM_IPUS_PER_REPLICA": "9" * 30}, f"POPDIST_NUM_IPUS_PER_REPLICA={'9' * 30} is above 65536"),
    (
        {"NUM_TOTAL_REPLICAS": "4", "NUM_LOCAL_REPLICAS": "2", "REPLICA_INDEX_OFFSET": "3"},
        "POPDIST_REPLICA_INDEX_OFFSET=3 plus POPDIST_NUM_LOCAL_REPLICAS=2 is more than POPDIST_NUM_TOTAL_REPLICAS=4",
    ),
    (
        {"NUM_TOTAL_REPLICAS": "5", "NUM_LOCAL_REPLICAS": "2", "REPLICA_INDEX_OFFSET": "2"},
        "POPDIST_NUM_TOTAL_REPLICAS=5 is not a multiple of POPDIST_NUM_LOCAL_REPLICAS=2",
    ),
    (
        {"NUM_TOTAL_REPLICAS": "4", "NUM_LOCAL_REPLICAS": "2", "REPLICA_INDEX_OFFSET": "1"},
        "POPDIST_REPLICA_INDEX_OFFSET=1 is not a multiple of POPDIST_NUM_LOCAL_REPLICAS=2",
    ),
]


@pytest.mark.parametrize(("values", "message"), MALFORMED, ids=[message[8:50] for _, message in MALFORMED])
def test_malformed_values_are_named(values: dict[str, str], message: str) -> None:
    environ = {f"POPDIST_{name}": value for name, value in values.items()}
    with pytest.raises(PopdistEnvironmentError) as caught:
        Environment.from_environ(environ)
    assert message in str(caught.value)
    assert str(caught.value).endswith("start the program with poprun-py, or unset the POPDIST_* variables")


def test_all_faults_are_named_together() -> None:
    with pytest.raises(PopdistEnvironmentError, match=r"TOTAL_REPLICAS='x' is .*; POPDIST_NUM_LOCAL_REPLICAS=0 is"):
        Environment.from_environ({"POPDIST_NUM_TOTAL_REPLICAS": "x", "POPDIST_NUM_LOCAL_REPLICAS": "0"})


def test_a_non_uniform_environment_needs_no_multiples() -> None:
    environ = Environment.of_instance(Layout.of((3, 1, 2)), 2).to_environ()
    assert Environment.from_environ(environ).replica_index_offset == 4
