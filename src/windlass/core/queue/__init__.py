"""What a node may ask of Slurm: jobs, their states, and whether a job is over. Python 3.9, standard library."""
