"""Run ``python -m poprun_py``: the ``poprun-py`` command."""

import sys

from poprun_py.cli import main

sys.exit(main())
