"""Run ``python -m ipu_emu``: the ``ipu-emu`` command."""

import sys


def run() -> int:
    """Run the command; Ctrl-C ends it without a traceback, also while its modules are imported."""
    try:
        from ipu_emu.cli import main

        main()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run())
