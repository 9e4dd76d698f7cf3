"""Slurm as a place: agents are jobs."""
