"""Import MPI before popdist_py; instance 1 fails while the others wait, for longer than a test may take."""

import sys

from mpi4py import MPI  # noqa: F401

import popdist_py

popdist_py.init()
if popdist_py.getInstanceIndex() == 1:
    sys.exit(3)
popdist_py.synchronize()
