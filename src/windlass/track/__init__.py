"""Metrics in and out."""
