"""Files: written whole or not at all."""

from __future__ import annotations

import contextlib
import os

__all__ = ["replace_file"]


def replace_file(path: str, data: bytes) -> str:
    """Write ``data`` to ``path`` under a temporary name and rename it; the reason if that failed, else ''."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return error.strerror or str(error)
    return ""
