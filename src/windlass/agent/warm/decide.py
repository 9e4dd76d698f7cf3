"""Decides which commands start from a warm interpreter, and keeps the servers for that. Python 3.9."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple

from windlass.agent.config import AgentConfig
from windlass.agent.warm.command import PythonCommand, WarmRefused, python_command
from windlass.agent.warm.starts import WarmServer
from windlass.environments.base import Inside

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
        enter: Callable[[List[str]], List[str]] = list,
        inside: Optional[Inside] = None,
    ) -> None:
        """`enter` puts a command into the study's environment; `inside` is of one with programs of its own."""
        self._config = config
        self._env = env
        self._agent_zip = agent_zip
        self._learned_path = learned_path
        self._note = note
        self._enter = enter
        self._inside = inside
        self._servers: Dict[Key, WarmServer] = {}
        self._refused: Dict[Tuple[str, ...], str] = {}
        self._gone: Set[Key] = set()
        self.opened: List[WarmServer] = []  # servers whose descriptors the loop has yet to watch
        self.closed: List[WarmServer] = []  # and those that it has yet to let go

    @property
    def explicit(self) -> bool:
        """The user named the modules: a refusal is an error, not a note."""
        return self._config.warm_mode == "list"

    def takes(self, argv: List[str], env: Mapping[str, str]) -> bool:
        """Whether this command starts warm; starts its server the first time."""
        if tuple(argv[:2]) in self._refused:
            return False
        command = self._command(argv, env)
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
                self._enter if self._inside is not None else None,
            )
            try:
                server.start()
            except WarmRefused as refused:
                self._refuse(argv, refused)
                return False
            self._servers[key] = server
            self.opened.append(server)
        return self._servers[key].accepts(command)

    def _command(self, argv: List[str], env: Mapping[str, str]) -> Optional[PythonCommand]:
        try:
            return self._parse(argv, env)
        except WarmRefused as refused:
            self._refuse(argv, refused)
            return None

    def _parse(self, argv: List[str], env: Mapping[str, str]) -> PythonCommand:
        find = None if self._inside is None else self._inside.find_program
        return python_command(argv, env, self._config.workdir, find)

    def _refuse(self, argv: List[str], refused: WarmRefused) -> None:
        """Say it once; the command starts cold."""
        if refused.reason not in self._refused.values():
            self._note(f"warm start refused: {refused.reason}")
        self._refused[tuple(argv[:2])] = refused.reason

    def spawn(
        self,
        token: int,
        argv: List[str],
        env: Mapping[str, str],
        out: int,
        err: int,
        workdir: str = "",
    ) -> None:
        """Have a trial started, in a folder of its own if it has one; the server knows the agent's."""
        command = self._parse(argv, env)
        if self._inside is not None:
            env = self._inside.translate(env)
        if workdir:
            command = command._replace(cwd=workdir)
        self._servers[command.interpreter, tuple(command.flags), command.target].spawn(
            token, command, env, out, err
        )

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
