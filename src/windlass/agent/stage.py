"""Brings code and data next to the trials. Python 3.9, standard library."""

from __future__ import annotations

from windlass.agent.config import AgentConfig
from windlass.agent.store import NodeStore


def stage_code(config: AgentConfig, store: NodeStore) -> None:
    """Unpack the frozen code and let `config.workdir` and `config.project_dir` point there. Raises NotReady."""


def stage_data(config: AgentConfig, store: NodeStore, target: str) -> None:
    """Let each of the study's data appear below `target`, with its relative path. Raises NotReady."""
