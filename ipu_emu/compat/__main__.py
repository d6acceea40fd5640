"""compat command: ``python -m ipu_emu.compat program.py``."""

import sys

try:
    from ipu_emu.compat import install, main

    install()
except KeyboardInterrupt:  # before the program runs, whose own interrupts are its own matter
    sys.exit(130)

sys.exit(main())
