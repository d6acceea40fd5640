"""Replace: writes a file whole or not at all, readable by its owner only."""

from __future__ import annotations

import os
import tempfile

__all__ = ["replace"]


def replace(path: str, data: bytes) -> None:
    """Write ``data`` to a temporary name beside ``path`` and rename it; raise OSError, leaving what was there."""
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
