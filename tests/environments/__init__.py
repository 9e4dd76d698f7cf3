"""Tests of the kinds of environments."""
