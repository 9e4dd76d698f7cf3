"""A real Slurm on this machine, for tests and for trying things: four nodes with GPUs that are only names."""

from __future__ import annotations

from .cluster import Cluster, ClusterError, NodesApartRefused, StorageRefused, find_missing_programs
from .storage import FILE_SYSTEMS

__all__ = [
    "FILE_SYSTEMS",
    "Cluster",
    "ClusterError",
    "NodesApartRefused",
    "StorageRefused",
    "find_missing_programs",
]
