"""What there is to run on, found before planning: this machine, the hosts, Slurm's allocation, networks, the MPI."""
