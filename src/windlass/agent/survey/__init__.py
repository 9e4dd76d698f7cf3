"""Measures what trials need, alone and side by side. Python 3.9, standard library."""
