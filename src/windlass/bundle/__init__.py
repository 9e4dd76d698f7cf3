"""Writes the study's folder: few, large files."""
