"""Site: the resources available to a job: this host, other hosts, the Slurm allocation, networks, the MPI."""
