"""Bandwidth of collectives: the limits within a host and between hosts, and unknown ones."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ipu_emu.cli.output.run_report.report_text import report_text
from ipu_emu.errors import ArgumentError
from ipu_emu.trace import read_run
from ipu_emu.trace.bandwidth import Bandwidth, Limit, bandwidths
from ipu_emu.trace.collective_calls import collective_calls
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.trace import MEMORY_RATE, NETWORK, Category, Kind, Recorder
from popdist_py.trace.network_rate import network
from popdist_py.trace.records import key_of

SIZE = 8_000_000
#: Nanoseconds of the data movement of a call.
MOVING = 2_000_000
ETHERNET: Any = {"interface": "eth0", "gigabytes_per_second": 12.5}
UNKNOWN: Any = {"interface": "veth1", "gigabytes_per_second": None}


def rates(folder: Path, facts: list[Any], hosts: str, *names: str, **about: Any) -> dict[str, Bandwidth]:
    """The bandwidth of collectives of 8 MB that take 2 ms, of which that on the i-th line takes i times as long."""
    for instance, (host, fact) in enumerate(zip(hosts, facts, strict=True)):
        known: dict[str, Any] = {"host": host, "boot": "b", "pid": 100 + instance}
        known["environment"] = {"POPDIST_REPLICA_INDEX_OFFSET": str(instance)}
        recorder = Recorder(str(folder), limit=64 << 20, about=known)
        recorder.define({MEMORY_RATE: 8.0})
        if fact:
            recorder.define({NETWORK: fact})
        for index, name in enumerate(names):
            what = {"communicator": 0, "bytes": SIZE, "replicas": 1, **about}
            number = recorder.name(name, Category.COLLECTIVES, **what)
            begin = 100_000_000 * (index + 1)
            recorder.record(key_of(Kind.SPAN, number), begin, begin + MOVING * (index + 1), index)
        recorder.close()
    run = read_run(folder)
    calls = collective_calls(run)
    return {call.name: bandwidth for call, bandwidth in zip(calls, bandwidths(run, calls), strict=True)}


def test_within_a_host_the_limit_is_the_rate_of_its_memory(tmp_path: Path) -> None:
    (bandwidth,) = rates(tmp_path, [ETHERNET] * 2, "aa", "all_reduce").values()
    assert bandwidth == Bandwidth(0.002, 4.0, 4.0, Limit.MEMORY, 8.0)
    assert bandwidth.share == 0.5


#: Bytes over the link of a host in one direction, by those of one input: of two hosts with two instances each.
CROSSING = {"all_reduce": 1, "reduce_scatter": 0.5, "all_gather": 2, "all_to_all": 1, "broadcast": 1, "reduce": 1}


def test_between_hosts_the_limit_is_the_slowest_interface_and_bytes_that_must_cross_it_count(tmp_path: Path) -> None:
    slow = {"interface": "eno2", "gigabytes_per_second": 1.25}
    by_name = rates(tmp_path, [ETHERNET, ETHERNET, slow, slow], "aabb", *CROSSING, "barrier")
    for index, (name, crossing) in enumerate(CROSSING.items()):
        bandwidth = by_name[name]
        assert (bandwidth.limit, bandwidth.most, bandwidth.interface) == (Limit.NETWORK, 1.25, "eno2")
        assert bandwidth.rate == pytest.approx(4.0 / (index + 1))
        assert bandwidth.bounded_rate == pytest.approx(crossing * 4.0 / (index + 1)), name
        assert bandwidth.share == pytest.approx(crossing * 3.2 / (index + 1))
    assert by_name["barrier"].limit is Limit.UNKNOWN


@pytest.mark.parametrize("facts", [[UNKNOWN] * 2, [None] * 2, [ETHERNET, UNKNOWN], [ETHERNET, None]])
def test_an_unknown_interface_is_replaced_by_the_best_rate_of_the_run(facts: list[Any], tmp_path: Path) -> None:
    by_name = rates(tmp_path, facts, "ab", "all_reduce", "broadcast")
    assert {bandwidth.limit.value for bandwidth in by_name.values()} == {"best rate between hosts in this run"}
    assert {name: bandwidth.share for name, bandwidth in by_name.items()} == pytest.approx(
        {"all_reduce": 1, "broadcast": 0.5}
    )
    assert {bandwidth.interface for bandwidth in by_name.values()} == {""}


def test_the_report_names_what_a_rate_is_compared_with(tmp_path: Path) -> None:
    rates(tmp_path, [ETHERNET] * 2, "ab", "all_reduce", "barrier")
    data = report_data(analyse(read_run(tmp_path)))
    first, second = sorted(data["collectives"], key=lambda row: str(row["name"]))
    assert (first["limit"], first["limit_interface"], first["share_of_limit"]) == ("network interface", "eth0", 0.32)
    assert (second["limit"], second["share_of_limit"]) == ("unknown", None)
    console = Console(width=80, record=True, markup=False, file=io.StringIO())
    console.print(report_text(data))
    said = " ".join(console.export_text().split())
    assert "bandwidth: up to 32% of the network interface eth0, 12.50 GB/s" in said
    assert "bandwidth: its limit is unknown for some collectives" in said


def test_groups_within_hosts_have_the_limit_of_the_memory_and_those_across_share_the_link(tmp_path: Path) -> None:
    for folder, stride, limit, crossing in (("in", 1, Limit.MEMORY, 1), ("across", 2, Limit.NETWORK, 2)):
        about = {"group_size": 2, "group_stride": stride, "group": folder}
        (bandwidth,) = rates(tmp_path / folder, [ETHERNET] * 4, "aabb", "all_reduce", **about).values()
        assert (bandwidth.limit, bandwidth.bounded_rate) == (limit, pytest.approx(4.0 * crossing))


@pytest.mark.parametrize("fact", [5, [], {"interface": 3}, {"interface": "x", "gigabytes_per_second": -1.0}])
def test_a_damaged_interface_is_refused(fact: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"damaged.*network"):
        rates(tmp_path, [fact or [1]], "a", "all_reduce")


def interfaces(folder: Path, **known: str | None) -> Path:
    """A folder like /sys/class/net: the speed of interfaces with a device, None for those without one."""
    for name, speed in known.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "operstate").write_text("up\n")
        (folder / name / "speed").write_text(f"{speed or 10000}\n")
        if speed is not None:
            (folder / name / "device").mkdir()
    return folder


@pytest.mark.parametrize(
    ("environment", "known", "interface", "rate"),
    [
        ({}, {"eth0": "10000", "lo": None}, "eth0", 1.25),
        ({}, {"eth0": "10000", "eth1": "100000"}, "", None),
        ({"UCX_NET_DEVICES": "eth1"}, {"eth0": "10000", "eth1": "100000"}, "eth1", 12.5),
        ({"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8", "FI_TCP_IFACE": "eth0"}, {"eth0": "25000"}, "eth0", 3.125),
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, {"eth0": "10000"}, "", None),
        ({"UCX_NET_DEVICES": "lo"}, {"eth0": "10000", "lo": None}, "lo", None),
        ({"GLOO_SOCKET_IFNAME": "veth3"}, {"veth3": None}, "veth3", None),
        ({}, {"veth3": None, "lo": None}, "", None),
        ({}, {"eth0": "-1"}, "eth0", None),
        ({}, {"eth0": "no speed"}, "eth0", None),
    ],
)
def test_the_interface_is_the_one_that_is_named_or_the_only_one(
    environment: dict[str, str], known: dict[str, str | None], interface: str, rate: float | None, tmp_path: Path
) -> None:
    fact = network(environment, interfaces=interfaces(tmp_path / "net", **known), infiniband=tmp_path / "infiniband")
    assert fact == {"interface": interface, "gigabytes_per_second": rate}


def test_with_infiniband_the_interface_of_messages_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    net = interfaces(tmp_path / "net", eth0="10000")
    assert network({}, interfaces=net, infiniband=tmp_path / "infiniband")["interface"] == ""
    assert network({}, interfaces=tmp_path / "none", infiniband=tmp_path / "none")["interface"] == ""
