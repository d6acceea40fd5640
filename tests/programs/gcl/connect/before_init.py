"""Connect before init: the error names init."""

import gcl
from tests.gcl.helpers.instance import error_of

print(error_of(lambda: gcl.connect(local_replicas=1, global_replicas=2)))
print(gcl.connect(local_replicas=3, segment_bytes=1 << 20).transport)
