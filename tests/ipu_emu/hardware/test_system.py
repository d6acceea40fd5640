"""Systems by name, and the numbers of their devices."""

from __future__ import annotations

import pytest

from gcl import Fabric, Topology
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import (
    System,
)


@pytest.mark.parametrize(
    ("name", "ipus", "machines", "domains", "version", "hosts"),
    [
        ("pod4", 4, 1, 1, "ipu2", 1),
        ("Pod-16", 16, 4, 1, "ipu2", 1),
        ("64", 64, 16, 1, "ipu2", 4),
        ("pod128", 128, 32, 2, "ipu2", 8),
        ("bow-pod256", 256, 64, 4, "ipu21", 16),
        ("8xpod16", 128, 32, 8, "ipu2", 8),
        ("16x8", 128, 32, 8, "ipu2", 8),
        ("8 x Pod16", 128, 32, 8, "ipu2", 8),
        ("2xbow-pod64", 128, 32, 2, "ipu21", 8),
        ("c2", 2, 1, 1, "ipu1", 1),
        ("DSS8440", 16, 4, 1, "ipu1", 1),
    ],
)
def test_systems(name: str, ipus: int, machines: int, domains: int, version: str, hosts: int) -> None:
    system = System.named(name)
    assert (system.ipus, system.machines, system.domains, system.version) == (ipus, machines, domains, version)
    assert system.most_hosts == hosts


@pytest.mark.parametrize(
    "name", ["pod5", "", "pod", "0xpod16", "2xpod128", "3xpod16", "pod131072", "pod-1", "bow", "²"]
)
def test_systems_that_there_are_not(name: str) -> None:
    with pytest.raises(EmulatorError, match="there is no such system; use pod4"):
        System.named(name)


@pytest.mark.parametrize(("name", "meant"), [("podd16", "pod16"), ("bow-pod61", "bow-pod64"), ("dss8441", "dss8440")])
def test_a_name_like_that_of_a_system_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(EmulatorError, match=f"; did you mean '{meant}'"):
        System.named(name)


def test_devices_are_numbered_by_width() -> None:
    pod = System.pod(16)
    assert [list(pod.device_ids(width)) for width in (8, 16, 32)] == [[28, 29], [30], []]
    assert pod.ipus_of(25) == (4, 5, 6, 7)
    assert pod.ipus_of(31) is None


@pytest.mark.parametrize(
    ("name", "replicas", "width", "expected"),
    [
        ("pod16", 16, 1, Fabric(16)),
        ("pod64", 64, 1, Fabric(64, topology=Topology.TORUS)),
        ("pod64", 8, 8, Fabric(8, 8, topology=Topology.TORUS)),
        ("pod64", 4, 8, Fabric(4, 8)),
        ("pod64", 3, 1, Fabric(4)),
        ("pod128", 16, 8, Fabric(16, 8, 2, topology=Topology.TORUS)),
        ("4xpod16", 64, 1, Fabric(64, 1, 4)),
    ],
)
def test_a_full_domain_of_64_ipus_is_a_torus(name: str, replicas: int, width: int, expected: Fabric) -> None:
    assert System.named(name).fabric(replicas, width) == expected
