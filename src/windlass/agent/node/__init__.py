"""Makes a node ready for trials and leaves it clean. Python 3.9, standard library."""
