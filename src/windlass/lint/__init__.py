"""Looks through other people's batch scripts for what Slurm ignores in silence or breaks on later."""
