"""windlass completion: let the shell complete verbs, options, studies, trials and parameters."""

from __future__ import annotations

import os

import click

from windlass.completion.install import find_places, find_shell, install, uninstall
from windlass.completion.scripts import SCRIPTS

_shell = click.argument("shell", required=False, type=click.Choice(list(SCRIPTS)))


@click.group()
def command() -> None:
    """Let the shell complete verbs, options, studies, trials and parameters (bash, zsh and fish).

    \b
    windlass completion install
    """


@command.command("install")
@_shell
@click.option(
    "--print", "print_it", is_flag=True, help="Print the function of the shell and change no file."
)
def install_command(shell: str | None, print_it: bool) -> None:
    """Install completion for SHELL (default: your login shell, $SHELL).

    A file with the shell's function is written, and for bash and zsh a line that reads it is added to ~/.bashrc or
    ~/.zshrc. To do this twice changes nothing. `windlass completion uninstall` undoes it.
    """
    chosen = find_shell(shell, os.environ)
    if print_it:
        click.echo(SCRIPTS[chosen], nl=False)
        return
    places = find_places(chosen, os.environ)
    changed = install(chosen, places)
    if not changed:
        click.echo(f"completion for {chosen} is installed already: {places.script}")
        return
    for path in changed:
        added = "wrote" if path == places.script else "added a line that reads it to"
        click.echo(f"{added} {path}")
    click.echo(f"It works in shells that you start from now on; `exec {chosen}` starts one here.")
    click.echo(f"To undo this: windlass completion uninstall {chosen}")


@command.command("uninstall")
@_shell
def uninstall_command(shell: str | None) -> None:
    """Remove what `windlass completion install` has written for SHELL (default: your login shell, $SHELL)."""
    chosen = find_shell(shell, os.environ)
    places = find_places(chosen, os.environ)
    changed = uninstall(places)
    for path in changed:
        done = "removed" if path == places.script else "took our lines out of"
        click.echo(f"{done} {path}")
    if not changed:
        click.echo(f"completion for {chosen} is not installed")
