"""compat command: ``python -m ipu_emu.compat program.py``."""

import sys

try:
    from ipu_emu.compat import install, main

    install()
except KeyboardInterrupt:  # before the program runs, which handles its own interrupts
    sys.exit(130)

sys.exit(main())
