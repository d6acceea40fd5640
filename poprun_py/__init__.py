"""poprun_py: the launcher that starts the instances of a job over MPI and answers for them until all are gone."""
