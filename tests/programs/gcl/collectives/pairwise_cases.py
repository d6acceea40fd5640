"""Check the cases of the command line, a pickle in hexadecimal digits."""

import pickle
import sys

from tests.gcl.helpers.checks import check_collectives
from tests.gcl.helpers.instance import connect

for case in pickle.loads(bytes.fromhex(sys.argv[1])):
    with connect(transport=case.transport, group=case.group, segment_bytes=1 << 29) as communicator:
        check_collectives(communicator, case.size, case.dtype, case.op, "mixed")
print("fine")
