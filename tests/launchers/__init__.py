"""Tests of the launchers."""
