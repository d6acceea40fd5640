"""Check collectives between hosts; print the bytes that each has sent."""

import json
import os
import sys

per_host, local = map(int, sys.argv[1:3])
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
names = ("NUM_TOTAL_REPLICAS", "NUM_LOCAL_REPLICAS", "REPLICA_INDEX_OFFSET", "LOCAL_INSTANCE_INDEX")
values = (size * local, local, rank * local, rank)
os.environ.update({f"POPDIST_{name}": str(value) for name, value in zip(names, values, strict=True)})
import gcl  # noqa: E402
import popdist_py  # noqa: E402
from tests.gcl.helpers.bitwise_comparison import check_dtypes  # noqa: E402


def sent():
    with open("/proc/net/dev") as file:
        lines = [line.split() for line in file if line.strip().startswith("v")]
    return sum(int(words[9]) for words in lines)


def count(communicator, collective):
    tensor = communicator.empty(2_000_000 if collective != "all_gather" else 500_000)
    if collective == "all_to_all":
        tensor = tensor.reshape(local, communicator.group.size, -1)
    communicator.barrier()
    before = sent()
    communicator.barrier()
    getattr(communicator, collective)(tensor)
    communicator.barrier()
    return sent() - before


popdist_py.init()
total, by_group = size * local, {}
groups = {
    "all": gcl.Group.all(total),
    "inside": gcl.Group.consecutive(total, per_host * local),
    "across": gcl.Group.orthogonal(total, size // per_host),
}
for name, group in groups.items():
    place = {"local_replicas": local, "global_offset": rank * local, "global_replicas": total}
    with gcl.connect(**place, group=group, timeout=250) as communicator:
        assert communicator.transport == ("hosts" if per_host > 1 else "mpi")
        check_dtypes(communicator, (7, 1000, 100_003) if name == "all" else (7, 1000))
        collectives = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
        by_group[name] = {collective: count(communicator, collective) for collective in collectives}
with open(f"{sys.argv[3]}.{rank}", "w") as file:
    json.dump(by_group, file)
