"""poptorch_core: the names that PopTorch takes from its compiled module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.session_options import check_session_options

__all__ = ["Error"]


def _validateOptions(options: Mapping[str, Any]) -> bool:
    """Raise poptorch.Error for a session option that does not exist."""
    check_session_options(options)
    return True
