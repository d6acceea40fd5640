"""Run ``python -m ipu_emu``: the ``ipu-emu`` command."""

import sys

from ipu_emu.cli import main

sys.exit(main())
