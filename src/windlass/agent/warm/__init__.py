"""Warm starts: trials are forked from an interpreter that has imported their modules. Python 3.9."""
