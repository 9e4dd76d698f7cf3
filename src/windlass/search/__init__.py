"""A Study becomes its Trials; one file an algorithm."""
