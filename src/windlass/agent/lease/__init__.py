"""Holding on to trials: which process keeps the clock, and what an agent knows of the register. Python 3.9."""
