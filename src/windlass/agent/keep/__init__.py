"""Working folders, outputs and checkpoints of trials. Python 3.9, standard library."""
