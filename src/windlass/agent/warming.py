"""Decides which commands start from a warm interpreter, and keeps the servers for that. Python 3.9."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple

from windlass.agent.config import AgentConfig
from windlass.agent.warm import PythonCommand, WarmRefused, WarmServer, python_command

Key = Tuple[str, Tuple[str, ...], str]


class Warming:
    """One warm server for each script the study starts; most studies have one."""

    def __init__(
        self,
        config: AgentConfig,
        env: Mapping[str, str],
        agent_zip: str,
        learned_path: str,
        note: Callable[[str], None],
    ) -> None:
        self._config = config
        self._env = env
        self._agent_zip = agent_zip
        self._learned_path = learned_path
        self._note = note
        self._servers: Dict[Key, WarmServer] = {}
        self._refused: Dict[Tuple[str, ...], str] = {}
        self._gone: Set[Key] = set()
        self.opened: List[WarmServer] = []  # servers whose descriptors the loop has yet to watch
        self.closed: List[WarmServer] = []  # and those that it has yet to let go

    @property
    def explicit(self) -> bool:
        """The user named the modules: a refusal is an error, not a note."""
        return self._config.warm_mode == "list"

    def takes(self, words: List[str], env: Mapping[str, str]) -> bool:
        """Whether this command starts warm; starts its server the first time."""
        if tuple(words[:2]) in self._refused:
            return False
        command = self._command(words, env)
        if command is None:
            return False
        key = (command.interpreter, tuple(command.flags), command.target)
        if key in self._gone:
            return False
        if key not in self._servers:
            server = WarmServer(
                command,
                self._env,
                self._config.warm_modules,
                self._config.warm_mode == "auto",
                self._agent_zip,
                self._learned_path,
            )
            try:
                server.start()
            except WarmRefused as refused:
                self._refuse(words, refused)
                return False
            self._servers[key] = server
            self.opened.append(server)
        return self._servers[key].accepts(command)

    def _command(self, words: List[str], env: Mapping[str, str]) -> Optional[PythonCommand]:
        try:
            return python_command(words, env, self._config.workdir)
        except WarmRefused as refused:
            self._refuse(words, refused)
            return None

    def _refuse(self, words: List[str], refused: WarmRefused) -> None:
        """Say it once; the command starts cold."""
        if refused.reason not in self._refused.values():
            self._note(f"warm start refused: {refused.reason}")
        self._refused[tuple(words[:2])] = refused.reason

    def spawn(
        self, token: int, words: List[str], env: Mapping[str, str], out: int, err: int, workdir: str = ""
    ) -> None:
        """Have a trial started, in a folder of its own if it has one; the server knows the agent's."""
        command = python_command(words, env, self._config.workdir)
        if workdir:
            command = command._replace(cwd=workdir)
        self._servers[command.interpreter, tuple(command.flags), command.target].spawn(token, command, env, out, err)

    def forget(self, server: WarmServer, reason: str, for_good: bool = True) -> None:
        """This server does not serve any more: its commands start cold from now on, or from another server."""
        if for_good:
            self._note(f"warm start ended: {reason}")
            self._gone.update(key for key, other in self._servers.items() if other is server)
        self._servers = {key: other for key, other in self._servers.items() if other is not server}

    @property
    def is_learning(self) -> bool:
        """Whether a server still finds out what trials import."""
        return any(server.is_learning for server in self._servers.values())

    @property
    def serves(self) -> bool:
        return bool(self._servers)

    def renew(self, changes: Mapping[str, str]) -> None:
        """Servers end; those that follow are started with these variables too."""
        self._env = {**self._env, **changes}
        for server in self._servers.values():
            self.closed.append(server)
        self._servers.clear()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
