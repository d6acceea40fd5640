"""Connect without arguments: the communicator has all replicas of the job."""

import gcl
import popdist_py
from tests.gcl.helpers.instance import error_of

print(error_of(gcl.connect))
popdist_py.init()
joined = gcl.connect()
print(joined.local_replicas, joined.global_offset, joined.global_replicas, joined.transport)
print(gcl.connect(local_replicas=2, segment_bytes=1 << 20).global_replicas)
