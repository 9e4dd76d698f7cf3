"""Meters: what trials use of memory, cores and GPUs. Python 3.9, standard library."""
