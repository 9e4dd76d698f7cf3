"""A recorded shell as the lines of a study's file that make trials find the same. Pure."""

from __future__ import annotations

import json

from windlass.collect.recorded import Draft


def render_draft(draft: Draft) -> str:
    """YAML, with what is left to the user as comments. Ends with a newline."""
    lines = []
    if draft.modules:
        lines.append(f"  modules: [{', '.join(json.dumps(name) for name in draft.modules)}]")
    if draft.kind:
        lines.append(f"  {draft.kind}: {json.dumps(draft.value)}")
    if draft.setup:
        lines += [
            "  setup:",
            *(f"    - {json.dumps(line, ensure_ascii=False)}" for line in draft.setup),
        ]
    text = (
        ["environment:", *lines]
        if lines
        else ["# nothing was changed that trials would need: no `environment:`"]
    )
    if draft.installed:
        text.append(
            "# installed by hand; in a file, with `build: requirements.txt`, it is there for every trial:"
        )
        text += [f"#   {line}" for line in draft.installed]
    if draft.tried:
        text.append("# tried:")
        text += [
            f"#   {_plain(one.line)}" + (f"   (exit code {one.code})" if one.code else "")
            for one in draft.tried
        ]
    if draft.unexplained:
        text.append(f"# changed by none of these lines: {', '.join(draft.unexplained)}")
    if draft.left_out:
        text.append(
            f"# left out, because it is nobody else's business: {', '.join(draft.left_out)}"
        )
    return "\n".join(text) + "\n"


def _plain(line: str) -> str:
    return line.replace("\n", "\\n")
