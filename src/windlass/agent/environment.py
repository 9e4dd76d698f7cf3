"""Activates what trials need around them: modules, a Python environment, lines of the user's. Python 3.9."""

from __future__ import annotations

from typing import Callable, Dict

from windlass.agent.config import AgentConfig
from windlass.agent.store import NodeStore


def activate(config: AgentConfig, base: Dict[str, str], store: NodeStore, say: Callable[[str], None]) -> Dict[str, str]:
    """The environment of trials. Raises NotReady where something is missing."""
    return base
