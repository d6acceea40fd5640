"""Files: written whole or not at all."""

from __future__ import annotations

import contextlib
import os

__all__ = ["replace_file", "unwritable"]


def unwritable(path: str) -> str:
    """The reason why ``path`` cannot be written, as far as that can be seen before; else ''."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if os.path.isdir(path):
        return "it is a folder"
    return "" if os.access(path if _special(path) else folder, os.W_OK) else "permission denied"


def replace_file(path: str, *parts: bytes | memoryview) -> str:
    """Write ``parts`` to ``path`` under a temporary name and rename it; the reason if that failed, else ''.

    A device or a pipe, such as /dev/stdout, is written to and stays what it is.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        if _special(path):
            with open(path, "wb") as device:
                device.writelines(parts)
            return ""
        with open(temporary, "wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return error.strerror or str(error)
    return ""


def _special(path: str) -> bool:
    """Whether ``path`` is a device, a pipe, or a name of an open file of this process: renaming would destroy it."""
    if os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
