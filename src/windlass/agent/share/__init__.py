"""Devices and memory shared by trials side by side. Python 3.9, standard library."""
