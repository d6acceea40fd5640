"""Hardware: numbers of the data sheets, numbering, device ids, and IPUs that two processes never share."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import (
    BOW,
    GC2,
    GC200,
    PATTERNS,
    Claims,
    Occupancy,
    SelectionOrder,
    System,
    groups,
    shard_order,
    share_of,
)
from tests.helpers.mpi_jobs import PROGRAMS


class Holder:
    """Somebody who holds IPUs."""


def test_peaks_are_those_of_the_data_sheets() -> None:
    peaks = {g.name: (g.peak(2) / 1e12, g.peak(4) / 1e12) for g in (GC2, GC200, BOW)}
    assert peaks["GC2"] == pytest.approx((124.5, 31.1), rel=1e-3)
    assert peaks["GC200"] == pytest.approx((250, 62.4), rel=5e-3)
    assert peaks["Bow"] == pytest.approx((350, 87.1), rel=5e-3)
    assert [round(g.exchange / 1e12, 2) for g in (GC2, GC200, BOW)] == [7.78, 7.83, 10.89]
    assert [g.sram // 2**20 for g in (GC2, GC200, BOW)] == [304, 897, 897]


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


def test_positions() -> None:
    pod = System.named("2xpod16")
    last, first = pod.position(15), pod.position(16)
    assert (last.machine, last.place, last.row, last.rail, last.domain) == (3, 3, 7, 1, 0)
    assert (first.rung_partner, first.rail_neighbours, first.domain) == (17, (18,), 1)
    assert last.rail_neighbours == (13,)
    assert pod.position(0).hops(last) == 8
    assert pod.position(2).ports == {
        "rung": ("2A", "2B", "2C", "3A", "3B", "3C"),
        "rail": ("0B", "0C"),
        "other machines": ("1B", "1C"),
    }


def test_devices_are_numbered_by_width() -> None:
    pod = System.pod(16)
    assert [list(pod.device_ids(width)) for width in (8, 16, 32)] == [[28, 29], [30], []]
    assert pod.ipus_of(25) == (4, 5, 6, 7)
    assert pod.ipus_of(31) is None


@pytest.mark.parametrize(
    ("order", "ipus", "expected"),
    [
        (SelectionOrder.ZIGZAG, 4, "0 1 2 3"),
        (SelectionOrder.SNAKE, 4, "0 1 3 2"),
        (SelectionOrder.HOOF, 4, "0 2 3 1"),
        (SelectionOrder.SNAKE, 8, "0 1 3 2 4 5 7 6"),
        (SelectionOrder.HOOF, 8, "0 2 4 6 7 5 3 1"),
        (SelectionOrder.SNAKE, 16, "0 1 3 2 4 5 7 6 8 9 11 10 12 13 15 14"),
        (SelectionOrder.HOOF, 16, "0 2 4 6 8 10 12 14 15 13 11 9 7 5 3 1"),
        (SelectionOrder.HOOF, 1, "0"),
        (SelectionOrder.SNAKE, 2, "0 1"),
    ],
)
def test_orders_of_shards(order: SelectionOrder, ipus: int, expected: str) -> None:
    assert " ".join(map(str, shard_order(order, ipus))) == expected


def test_neighbours_in_an_order_are_neighbours_in_the_pod() -> None:
    """Hops between consecutive shards, and from the last to the first."""
    expected = {
        SelectionOrder.ZIGZAG: ([1, 2], 4, 8),
        SelectionOrder.SNAKE: ([1], 3, 7),
        SelectionOrder.HOOF: ([1], 1, 1),
    }
    for order, (between, *round_trips) in expected.items():
        for ipus, back in zip((8, 16), round_trips, strict=True):
            system = System.pod(ipus)
            at = [system.position(ipu) for ipu in shard_order(order, ipus)]
            assert sorted({one.hops(two) for one, two in pairwise(at)}) == between
            assert at[-1].hops(at[0]) == back


def test_auto_snakes_for_pipelines_in_order() -> None:
    assert shard_order(SelectionOrder.AUTO, 4, [0, 1, 2, 3]) == shard_order(SelectionOrder.SNAKE, 4)
    assert shard_order(SelectionOrder.AUTO, 4, [0, 1, 1, 0]) == shard_order(SelectionOrder.ZIGZAG, 4)
    assert shard_order(SelectionOrder.AUTO, 4) == shard_order(SelectionOrder.ZIGZAG, 4)


def test_sync_groups() -> None:
    def drawn(name: str, ipus: int, width: int) -> tuple[object, object]:
        pattern = PATTERNS[name]
        return groups(pattern.gs1, range(ipus), width), groups(pattern.gs2, range(ipus), width)

    assert drawn("Full", 4, 2) == (((0, 1), (2, 3)), ((0, 1, 2, 3),))
    assert drawn("SinglePipeline", 4, 4) == (((0,), (1,), (2,), (3,)), ((0, 1, 2, 3),))
    assert drawn("ReplicaAndLadder", 4, 4) == (((0, 1, 2, 3),), ((0, 2), (1, 3)))


_CHILD = PROGRAMS / "ipu_emu/attached_device.py"


def test_two_processes_never_have_the_same_ipus(tmp_path: Path) -> None:
    occupancy, mine = Occupancy(Claims.on(System.pod(16), str(tmp_path))), Holder()
    assert occupancy.take(mine, [0, 3])
    child = subprocess.Popen(
        [sys.executable, _CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [child.stdout.readline().strip() for _ in range(4)]
    assert said == ["False", "True", "False", f"{os.getpid()} True"]
    assert [occupancy.holder(ipu) for ipu in range(4)] == [os.getpid(), child.pid, child.pid, os.getpid()]
    assert not occupancy.take(Holder(), [1])
    assert occupancy.take(mine, [0, 4]), "a holder changes what it has"
    child.communicate("\n", timeout=250)
    assert occupancy.is_free([1, 2, 3])


def test_ipus_of_a_collected_holder_are_released(tmp_path: Path) -> None:
    occupancy = Occupancy(Claims.on(System.pod(16), str(tmp_path)))
    holder = Holder()
    assert occupancy.take(holder, [5])
    assert not occupancy.take(Holder(), [5])
    del holder
    assert occupancy.is_free([5])
    again = Holder()
    assert occupancy.take(again, [5])
    occupancy.release(again)
    assert occupancy.is_free([5])


@pytest.mark.filterwarnings("ignore:Programs do not see")
def test_without_a_folder_a_process_is_alone(tmp_path: Path) -> None:
    (tmp_path / f"ipu-emu-{os.getuid()}").write_text("in the way")
    occupancy = Occupancy(Claims.on(System.pod(16), str(tmp_path)))
    holder = Holder()
    assert occupancy.take(holder, [0])
    assert not occupancy.is_free([0])


def test_instances_of_a_job_share_its_pod_out() -> None:
    job = {
        "POPDIST_NUM_TOTAL_REPLICAS": "8",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_NUM_IPUS_PER_REPLICA": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "4",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_LOCAL_INSTANCE_INDEX": "2",
    }
    assert share_of(System.from_environ(job), job) == range(8, 12)
    assert share_of(System.pod(4), {}) == range(4)


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_one_warning_where_somebody_else_has_made_the_folder_of_the_locks(kind: str, tmp_path: Path) -> None:
    planted = tmp_path / f"ipu-emu-{os.getuid()}"
    if kind == "link":
        planted.symlink_to(tmp_path)
    elif kind == "file":
        planted.touch()
    elif os.getuid() != 0:
        pytest.skip("needs root to give folders to others")
    else:
        planted.mkdir()
        os.chown(planted, 65534, -1)
    with pytest.warns(UserWarning, match=f"do not see which IPUs others use, as {planted} is not") as warned:
        claims = [Claims.on(System.pod(16), str(tmp_path)) for _ in range(2)]
    assert len(warned) == 1
    assert all(each.take([0]) for each in claims)
    assert Claims.all_in(str(tmp_path)) == []


def test_one_warning_where_the_folder_of_the_locks_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "claims").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="do not see which IPUs others use, as .* cannot be used: No such") as warned:
        _ = [Claims.on(System.pod(16), str(tmp_path / "claims")) for _ in range(2)]
    assert [warning.filename for warning in warned] == [__file__]
