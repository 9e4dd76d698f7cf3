"""Draws docs/architecture.svg, the way of the data. `make docs` writes it."""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 1100, 440, 168, 56
STYLE = """
text { font: 14px sans-serif; fill: #1f2933 } .small { font-size: 12px; fill: #52606d }
.part { font: 12px monospace; fill: #0b69a3 } .head { font-size: 13px; font-weight: bold; fill: #334e68 }
.box { fill: #ffffff; stroke: #829ab1; stroke-width: 1.5 } .disk { fill: #fff8e6; stroke: #de911d; stroke-width: 1.5 }
.area { fill: #f0f4f8; stroke: #d9e2ec } .way { fill: none; stroke: #486581; stroke-width: 1.6; marker-end: url(#tip) }
.back { stroke-dasharray: 5 4 }
"""
# An area: its heading, left, top, width, height, and the height at which the heading stands.
AREAS = [
    ("Planned: pure values; nothing is changed", 8, 12, 872, 196, 34),
    ("The shared folder", 452, 228, 428, 200, 420),
    ("On the node", 900, 228, 192, 200, 420),
    ("Shown, also while agents work", 8, 228, 424, 200, 420),
]
# A box: its name, what it is, the part of the code that makes it, its style, and where it stands.
BOXES = [
    ("study.yaml", "command and values", "", "disk", 24, 48),
    ("Study", "what was given", "spec/", "box", 240, 48),
    ("Trials", "one for each setting", "search/", "box", 456, 48),
    ("Plan", "agents, requests, cost", "plan/ places/", "box", 696, 48),
    ("Measurement", "what one trial needs", "measure/", "box", 240, 140),
    ("Site", "what the cluster has", "site/", "box", 456, 140),
    ("Trials, plan, code", "and the agent itself", "bundle/", "disk", 696, 252),
    ("Register", "which agent holds what", "core/claims/", "disk", 468, 252),
    ("Journals", "what became of trials", "core/journal/", "disk", 468, 344),
    ("Agents", "processes or jobs", "agent/", "box", 912, 252),
    ("Your program", "and windlass.log", "launchers/ trial/", "box", 912, 344),
    ("State", "of every trial", "collect/", "box", 240, 344),
    ("Answers", "tables, JSON, plots", "view/ cli/", "box", 24, 344),
]
# An arrow: its path, and "back" where it is dashed.
ARROWS = [
    ("M192 76 H236", ""),
    ("M408 76 H452", ""),
    ("M624 76 H692", ""),
    ("M408 168 C430 168 430 124 470 124 H650 C680 124 670 92 692 92", ""),
    ("M624 168 H780 V108", ""),
    ("M820 104 V248", ""),
    ("M864 280 H908", ""),
    ("M960 252 C960 236 560 216 552 248", ""),
    ("M996 308 V340", ""),
    ("M940 344 V312", "back"),
    ("M930 308 C900 372 760 372 640 372", ""),
    ("M464 372 H412", ""),
    ("M236 372 H196", ""),
    ("M324 344 V200", "back"),
]


def render() -> str:
    """The whole picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' aria-label="The way of the data">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#486581"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for heading, left, top, width, height, line in AREAS:
        parts += [
            f'<rect class="area" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>',
            f'<text class="head" x="{left + 12}" y="{line}">{escape(heading)}</text>',
        ]
    for name, about, part, style, left, top in BOXES:
        place = f'x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        parts += [
            f'<rect class="{style}" {place} rx="6"/>',
            f'<text x="{left + 10}" y="{top + 18}">{escape(name)}</text>',
            f'<text class="small" x="{left + 10}" y="{top + 34}">{escape(about)}</text>',
            f'<text class="part" x="{left + 10}" y="{top + 49}">{escape(part)}</text>',
        ]
    parts += [f'<path class="way {style}" d="{path}"/>' for path, style in ARROWS]
    parts.append('<text class="small" x="334" y="300">what trials used</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    print(render(), end="")
