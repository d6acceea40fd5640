"""Host processor: what kernels of the emulated IPUs need of the processor that runs them."""

from __future__ import annotations

import platform
from collections.abc import Collection
from functools import cache

from ipu_emu.errors import UnsupportedError

#: 256-bit vectors, fused multiply-add, conversions from and to half precision.
NEEDED = ("avx2", "fma", "f16c", "bmi2")


def check_host_processor(features: Collection[str] | None = None) -> None:
    """Raise UnsupportedError for another architecture, or without one of ``NEEDED``.

    ``features`` are those of the processor; by default those in /proc/cpuinfo, if that can be read.
    """
    if platform.machine() != "x86_64":
        raise UnsupportedError(
            f"the emulated IPUs need an x86-64 processor, this host has {platform.machine()}; use an x86-64 host for "
            "them (gcl and the launcher do not need one)"
        )
    present = _listed() if features is None else features
    missing = [name for name in NEEDED if name not in present]
    if missing and present:
        raise UnsupportedError(
            f"the emulated IPUs need {', '.join(missing)}, which this processor does not have; use a host with AVX2 "
            "and FMA (Intel since Haswell, AMD since Excavator and Zen)"
        )


@cache  # a processor does not change
def _listed() -> frozenset[str]:
    """The features of the first processor; none where they cannot be read."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next((frozenset(line.split()) for line in lines if line.startswith("flags")), frozenset())
    except OSError:
        return frozenset()
