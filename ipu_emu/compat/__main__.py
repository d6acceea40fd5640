"""compat command: ``python -m ipu_emu.compat program.py``."""

import sys

from ipu_emu.compat import main

sys.exit(main())
