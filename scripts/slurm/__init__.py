"""A real Slurm on this machine, for tests and for trying things: four nodes with GPUs that are only names."""

from __future__ import annotations

from .cluster import Cluster, ClusterError, NodesApartRefused, find_missing_programs

__all__ = ["Cluster", "ClusterError", "NodesApartRefused", "find_missing_programs"]
