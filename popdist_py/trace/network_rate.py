"""Network rate: the rates that bound collectives: of the network interface of a process, and of copies in its memory.

That of the network is not measured, as that would delay the start too much. Some rates remain unknown: if there are
several interfaces and none is named, the one that MPI chooses; and the rate of interfaces without a link, such as the
loopback and those of containers and virtual machines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from popdist_py.trace.recorder import Recorder

#: The fact in a trace: the name of the interface, and its GB/s; empty and None if they are unknown.
NETWORK = "network"
#: Variables that name the interface: of Open MPI, UCX, libfabric and gloo.
_VARIABLES = ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "FI_TCP_IFACE", "GLOO_SOCKET_IFNAME")
_INTERFACES, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
_MEGABITS = 8000  # of a GB
#: The fact in a trace: GB/s.
MEMORY_RATE = "copy_gigabytes_per_second"
_COPIED, _TIMES = 16 << 20, 5


def record_network(recorder: Recorder) -> None:
    """Record the interface of this process."""
    recorder.define({NETWORK: network(os.environ)})


def network(
    environment: Mapping[str, str], *, interfaces: Path = _INTERFACES, infiniband: Path = _INFINIBAND
) -> dict[str, Any]:
    """The fact for a process with this environment."""
    name = _interface(environment, interfaces, infiniband)
    return {"interface": name, "gigabytes_per_second": _rate(interfaces / name) if name else None}


def _interface(environment: Mapping[str, str], interfaces: Path, infiniband: Path) -> str:
    """The interface that a variable names, or else the only one with a device that is up."""
    try:
        known = sorted(path.name for path in interfaces.iterdir())
        named = [environment[variable] for variable in _VARIABLES if environment.get(variable)]
        if named or (infiniband.is_dir() and any(infiniband.iterdir())):
            return next((name for name in named if name in known), "")
    except OSError:
        return ""
    candidates = [name for name in known if (interfaces / name / "device").exists() and _is_up(interfaces / name)]
    return candidates[0] if len(candidates) == 1 else ""


def _is_up(interface: Path) -> bool:
    return _text(interface / "operstate") == "up"


def _rate(interface: Path) -> float | None:
    """GB/s; None for an interface without a device, whose number is meaningless, and for one without a number."""
    if not ((interface / "device").exists() or (interface / "bonding").exists()):
        return None
    text = _text(interface / "speed")
    return int(text) / _MEGABITS if text.isdecimal() and int(text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def record_memory_rate(recorder: Recorder) -> None:
    """Copy 16 MiB a few times and record the best rate; takes about 30 ms."""
    source, target = memoryview(b"\1" * _COPIED), memoryview(bytearray(_COPIED))
    nanoseconds = []
    for _ in range(_TIMES):
        begin = perf_counter_ns()
        target[:] = source
        nanoseconds.append(perf_counter_ns() - begin)
    recorder.define({MEMORY_RATE: _COPIED / min(nanoseconds)})
