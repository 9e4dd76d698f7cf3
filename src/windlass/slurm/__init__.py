"""Slurm's words as values: states, queue, accounting, records. Plain text is read; no plugin of Slurm's is needed."""
