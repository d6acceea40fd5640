"""Site: what a job can run on: this host, other hosts, the Slurm allocation, networks, the MPI installation."""
