"""Messages over MPI; the only part of gcl that imports mpi4py."""
