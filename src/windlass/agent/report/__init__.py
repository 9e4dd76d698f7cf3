"""What trials print and report, and how it is kept. Python 3.9, standard library."""
