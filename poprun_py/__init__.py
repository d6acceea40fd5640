"""poprun_py: the launcher, which starts the instances of a job over MPI, supervises them and cleans up after them."""
