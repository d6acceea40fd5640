"""fusion: several ops or collectives become one.

Passes fuse ops. Collectives are merged by the pass ``lower``, which turns ops into instructions, because a merged
collective is one instruction for several ops and cannot be expressed in a graph.
"""
