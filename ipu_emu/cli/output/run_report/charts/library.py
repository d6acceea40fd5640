"""Chart library: plotly's script, which draws the charts of a page, from its Python package if it is installed."""

from __future__ import annotations

import base64
import zlib
from importlib.util import find_spec
from pathlib import Path

MISSING = "Charts are left out because plotly is not installed; pip install 'poprun-py[report]' brings it."


def library_script() -> Path | None:
    """The file of the script; None without plotly."""
    spec = find_spec("plotly")
    folders = (spec and spec.submodule_search_locations) or ()
    scripts = (Path(folder) / "package_data" / "plotly.min.js" for folder in folders)
    return next((script for script in scripts if script.is_file()), None)


def packed(script: Path) -> str:
    """The script compressed, as text, because it is most of a small page."""
    return base64.b64encode(zlib.compress(script.read_bytes())).decode()
