"""Run ``python -m ipu_emu.cli``: the ``ipu-emu`` command."""

import sys

from ipu_emu.cli import main

sys.exit(main())
