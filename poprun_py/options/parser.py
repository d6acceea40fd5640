"""Parser: the options of a launch, from a command line and the file that --import-config names, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poprun_py.options.option_table import LaunchOptions
from poprun_py.options.parsed_options import ParsedOptions
from poprun_py.options.validation import validated


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> LaunchOptions:
    """Parse ``argv`` (without the name of the launcher) and the file that --import-config names.

    ``environ`` (default: empty) provides some defaults. Raise UsageError with all mistakes.
    """
    parsed = ParsedOptions(list(argv))
    parsed.run()
    if path := parsed.values.get("import_config"):
        from poprun_py.options.config_file import load  # few jobs have one

        parsed.add_defaults(load(path))
    return validated(parsed, environ or {})
