"""Worker: runs golden programs in one process, and prints a line of JSON for each.

    python -m tests.golden.worker NAME ...

``GOLDEN_OPS`` names a file to which the digest of the results of every op is written, in the order in which they ran.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from tests.golden.catalogue import PROGRAMS
from tests.golden.op_digests import OPS, record_ops


def main() -> None:
    if os.environ.get(OPS):
        record_ops(os.environ[OPS])
    for name in sys.argv[1:]:
        try:
            result = {"program": name, "digests": dict(PROGRAMS[name].run())}
        except Exception as error:  # the failure of a program is a result
            traceback.print_exc()
            result = {"program": name, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
