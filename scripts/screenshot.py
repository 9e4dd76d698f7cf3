"""Runs commands in a real pseudo-terminal and draws what remains on the screen as an SVG: docs/terminal.svg."""

from __future__ import annotations

import html
import os
import pty
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COLUMNS = 92
COLORS = {
    "31": "#e06c75",
    "32": "#98c379",
    "2": "#7f848e",
    "1": "#ffffff",
    "33": "#e5c07b",
    "36": "#56b6c2",
}
COMMANDS = (
    "windlass run study.yaml",
    "windlass results --by lr,trace | head -n 8",
    "windlass results --best",
)


def record(command: str, cwd: Path) -> str:
    """All that a command writes to its terminal."""
    chunks: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        chunks.append(data)
        return data

    os.chdir(cwd)
    os.environ.update(COLUMNS=str(COLUMNS), LINES="40", TERM="xterm-256color")
    pty.spawn(["sh", "-c", f"stty cols {COLUMNS}; {command}"], read)
    return b"".join(chunks).decode("utf-8", "replace")


def visible(text: str) -> list[str]:
    """What remains on each line after redraws."""
    return [line.rstrip("\r").split("\r")[-1].replace("\x1b[K", "") for line in text.split("\n")]


def spans(line: str) -> str:
    """A line with colours as SVG text."""
    out, color = [], ""
    for part in re.split(r"(\x1b\[[\d;]*m)", line[: COLUMNS * 2]):
        match = re.fullmatch(r"\x1b\[([\d;]*)m", part)
        if match:
            color = next((COLORS[code] for code in match.group(1).split(";") if code in COLORS), "")
        elif part:
            fill = f' fill="{color}"' if color else ""
            out.append(f"<tspan{fill}>{html.escape(part)}</tspan>")
    return "".join(out)


def draw(lines: list[str]) -> str:
    height = 19 * len(lines) + 34
    rows = "\n".join(
        f'<text x="16" y="{30 + 19 * number}" xml:space="preserve">{spans(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * 8.45 + 32:.0f}" height="{height}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#d7dae0">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#1e2127"/>\n{rows}\n</svg>\n'
    )


def main() -> None:
    folder = Path("/tmp/quickstart")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / "quickstart", folder)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    lines: list[str] = []
    for command in COMMANDS:
        lines += [f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m", *visible(record(command, folder))]
    shutil.rmtree(folder)
    (ROOT / "docs" / "terminal.svg").write_text(draw([line for line in lines if line.strip()]))


if __name__ == "__main__":
    main()
