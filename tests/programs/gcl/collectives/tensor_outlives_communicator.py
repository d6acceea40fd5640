"""Use a shared tensor after its communicator was closed."""

import gc

from tests.gcl.helpers.instance import connect

communicator = connect()
closed = communicator.shared(1000)
communicator.barrier()
communicator.close()
closed[:] = 1
communicator = connect()
dropped = communicator.shared(1000)
communicator.barrier()
del communicator
gc.collect()
dropped[:] = 1
print(closed.sum(), dropped.sum())
