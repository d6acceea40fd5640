"""PopDist's functions, with and without a launcher, in one process (between processes: test_backend)."""

from collections.abc import Callable

import numpy as np
import pytest

import popdist_py
from popdist_py import BackendError, LayoutError, PopdistEnvironmentError

Become = Callable[..., None]


def test_without_a_launcher() -> None:
    assert popdist_py.isPopdistEnvSet() is False
    assert popdist_py.getInstanceIndex() == 0
    assert popdist_py.getNumInstances() == 1
    assert popdist_py.getNumTotalReplicas() == 1
    assert popdist_py.getNumLocalReplicas() == 1
    assert popdist_py.getNumIpusPerReplica() == 1
    assert popdist_py.getReplicaIndexOffset() == 0
    assert popdist_py.getLocalInstanceIndex() == 0
    assert popdist_py.checkNumIpusPerReplica(1) is True
    assert popdist_py.checkNumIpusPerReplica(2) is False
    assert popdist_py.getDeviceId() == 0


def test_as_an_instance(become: Become) -> None:
    become(3, 2, 2, 2, 2, ipus_per_replica=4)
    assert popdist_py.isPopdistEnvSet() is True
    assert popdist_py.getInstanceIndex() == 3
    assert popdist_py.getNumInstances() == 4
    assert popdist_py.getNumTotalReplicas() == 8
    assert popdist_py.getNumLocalReplicas() == 2
    assert popdist_py.getNumIpusPerReplica() == 4
    assert popdist_py.getReplicaIndexOffset() == 6
    assert popdist_py.getLocalInstanceIndex() == 3
    assert popdist_py.checkNumIpusPerReplica(4) is True
    assert popdist_py.checkNumIpusPerReplica(1) is False


def test_indices_need_uniform_replicas_and_the_rest_does_not(become: Become) -> None:
    become(1, 3, 1, 2)
    assert (popdist_py.getNumTotalReplicas(), popdist_py.getReplicaIndexOffset()) == (6, 3)
    for call in (popdist_py.getInstanceIndex, popdist_py.getNumInstances):
        with pytest.raises(PopdistEnvironmentError, match="same number of replicas"):
            call()


def test_a_malformed_environment_is_an_error_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "many")
    assert popdist_py.isPopdistEnvSet()
    for call in (popdist_py.getNumTotalReplicas, popdist_py.getInstanceIndex, popdist_py.init):
        with pytest.raises(PopdistEnvironmentError, match="POPDIST_NUM_TOTAL_REPLICAS='many'"):
            call()
    assert not popdist_py.isBackendInitialized()


@pytest.mark.parametrize(("instance", "device"), [(0, 24), (1, 25), (2, 26), (3, 27)])
def test_device_ids_of_the_user_guide(become: Become, instance: int, device: int) -> None:
    """8 replicas of 2 IPUs in 4 instances on a Pod16: each instance has a device of 4 IPUs."""
    become(instance, 2, 2, 2, 2, ipus_per_replica=2)
    assert popdist_py.getDeviceId() == device
    assert popdist_py.getDeviceId(2) == device


def test_device_ids_by_width(become: Become) -> None:
    become(1, 1, 1)
    assert [popdist_py.getDeviceId(width) for width in (0, 1, 2, 4, 8)] == [1, 1, 17, 25, 29]
    become(0, 1)
    assert popdist_py.getDeviceId(16) == 30


def test_the_next_larger_device_holds_other_numbers_of_ipus(become: Become) -> None:
    become(1, 3, 3)  # two devices of 4 IPUs
    assert popdist_py.getDeviceId() == 16 + 8 + 1
    become(0, 2, ipus_per_replica=3)
    assert popdist_py.getDeviceId() == 16 + 8 + 4
    with pytest.raises(LayoutError, match="ipusPerReplica = -1; use at least 1"):
        popdist_py.getDeviceId(-1)


def test_init_may_be_repeated_and_initialize_may_not() -> None:
    assert popdist_py.isBackendInitialized() is False
    popdist_py.init()
    popdist_py.init()
    assert popdist_py.isBackendInitialized() is True
    with pytest.raises(BackendError, match=r"initializeBackend\(\) was called twice"):
        popdist_py.initializeBackend()
    popdist_py.synchronize()
    popdist_py.finalizeBackend()
    assert popdist_py.isBackendInitialized() is False


@pytest.mark.parametrize(
    "call",
    [
        popdist_py.synchronize,
        popdist_py.finalizeBackend,
        lambda: popdist_py.allReduce(1.0),
        lambda: popdist_py.allGather(np.zeros(3)),
        lambda: popdist_py.broadcast("text"),
    ],
)
def test_a_collective_before_init_names_init(call: Callable[[], object]) -> None:
    with pytest.raises(BackendError, match=r"call popdist_py\.init\(\) first"):
        call()


def test_one_instance_alone_gets_its_own_values_back() -> None:
    popdist_py.init()
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    for op in ("sum", "mean", "mul", "min", "max"):
        result = popdist_py.allReduce(x, op)
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(popdist_py.allGather(x), x[None])
    np.testing.assert_array_equal(popdist_py.broadcast(x), x)
    assert popdist_py.broadcast({"epoch": 3}) == {"epoch": 3}


def test_execute_on_instances_runs_it_here_only_if_it_is_here(become: Become) -> None:
    def add(a: int, *, b: int) -> int:
        return a + b

    become(1, 2, 2, 2)
    assert popdist_py.execute_on_instances({1}, add, 3, b=4) == 7
    assert popdist_py.execute_on_instances({1, 2}, add, 3, b=4) == 7
    assert popdist_py.execute_on_instances({0, 2}, add, 3, b=4) is None


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ({0, 3}, r"found \[3\]; instances are 0 to 2"),
        ({-1}, r"found \[-1\]"),
        (set(), "found none; instances are 0 to 2"),
    ],
)
def test_unknown_instances_are_an_error_on_every_instance(become: Become, instances: set[int], message: str) -> None:
    for instance in range(3):
        become(instance, 2, 2, 2)
        with pytest.raises(LayoutError, match=message):
            popdist_py.execute_on_instances(instances, print)


def test_errors_of_the_function_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        popdist_py.execute_on_instances({0}, lambda: 1 // 0)
