"""Executable file: an executable as bytes, with a checksum."""

from __future__ import annotations

from ipu_emu.compiler.cache.packed_value import pack, unpack
from ipu_emu.errors import EmulatorError
from ipu_emu.program.executable import Executable

__all__ = ["MAGIC", "from_bytes", "to_bytes"]

#: The first bytes of a file.
MAGIC = b"IPUEMU\x00\x02"


def to_bytes(executable: Executable, key: str) -> bytes:
    """Return ``executable`` as the content of a file."""
    return pack(MAGIC, executable, key)


def from_bytes(data: bytes, key: str | None = None) -> Executable:
    """Reverse ``to_bytes``; raise EmulatorError for bytes that are damaged, or of another key."""
    made = unpack(MAGIC, data, "an executable", key)
    if not isinstance(made, Executable):
        raise EmulatorError("it does not hold an executable")
    return made
