"""Configuration of the documentation site; scripts/docs builds it."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
gc.set_threshold(
    500_000
)  # hardly any of the millions of nodes of a build goes: looking for it takes a third of the time

project = "poprun-py"
author = "the authors of poprun-py"
copyright = author
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "docs._ext.site_pages"]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 160

smartquotes = False  # "--option" keeps its dashes

html_theme = "furo"
html_title = "poprun-py"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_ext/static"]
html_css_files = ["site.css"]
