"""Sphinx extension: writes the generated pages before Sphinx looks for its sources, and prepares docstrings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from docs._ext import api_pages, command_pages, op_pages, session_option_page
from docs._ext.docstrings import to_rst

#: Folder of the generated pages, below docs/; not in the repository.
GENERATED = "reference/generated"


def pages() -> dict[str, str]:
    """File below GENERATED -> its text."""
    texts = {f"api/{name}.rst": api_pages.page(name) for name in api_pages.PUBLIC_MODULES}
    texts["commands.md"] = command_pages.page()
    texts["ops.md"] = op_pages.page()
    texts["session-options.md"] = session_option_page.page()
    return texts


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed, and remove those that are no longer generated."""
    folder = Path(app.srcdir) / GENERATED
    texts = pages()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.rglob("*.*"):
        if path.is_file() and str(path.relative_to(folder)) not in texts:
            path.unlink()


def plain_docstring(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Replace the docstring of ``obj`` by its reStructuredText form."""
    if "Options:" in lines:
        del lines[lines.index("Options:") :]
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two handlers."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", plain_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
