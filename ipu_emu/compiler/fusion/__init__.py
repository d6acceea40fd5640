"""fusion: several ops or collectives become one.

Fusing ops is the work of passes. Collectives are merged while ``lower`` makes instructions of ops, because a merged
collective is one instruction of several ops and has no form in a graph.
"""
