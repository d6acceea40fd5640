"""System size: the number of IPUs of the emulated Pod, which limits a job; set by IPU_EMU_SYSTEM (pod16, ...)."""

from __future__ import annotations

from collections.abc import Mapping

SYSTEM_VARIABLE = "IPU_EMU_SYSTEM"

#: IPUs of the largest installation that Graphcore describes.
_LARGEST = 65536


def system_size(environ: Mapping[str, str]) -> int:
    """Return the number of IPUs of the Pod, by default of the largest one; raise ValueError for an unknown Pod."""
    name = environ.get(SYSTEM_VARIABLE, "")
    if not name:
        return _LARGEST
    digits = name.lower().removeprefix("pod").lstrip("-_ ")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6 and _is_pod(int(digits))):
        raise ValueError(
            f"{SYSTEM_VARIABLE}={name}: there is no such system; use pod4, pod16, pod64, pod128, pod256 or a larger "
            f"power of two up to pod{_LARGEST}"
        )
    return int(digits)


def partition_size(ipus: int) -> int:
    """Return the size of the smallest partition that holds ``ipus``: a power of two."""
    return int(1 << (ipus - 1).bit_length())


def _is_pod(size: int) -> bool:
    return 4 <= size <= _LARGEST and size == partition_size(size)
