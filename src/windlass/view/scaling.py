"""How one trial speeds up with more processes, as text and as a picture. Pure."""

from __future__ import annotations

from html import escape

from windlass.core.units import render_duration, render_mb
from windlass.measured import Scaling
from windlass.view.curve import axis_ticks, places_of
from windlass.view.curve_svg import PICTURE_STYLE
from windlass.view.table import render_table

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 76, 28, 64, 56
_WORDS = {"gpus": "GPUs", "processes": "processes"}


def render_scaling(scaling: Scaling) -> str:
    """A row for each number of processes, and which choice gives more trials an hour."""
    what = _WORDS[scaling.kind]
    one_s = scaling.points[0].time_s
    rows: list[dict[str, str]] = []
    for point in scaling.points:
        speed_up = scaling.speed_up(point)
        has_speed = speed_up is not None
        rows.append(
            {
                what: str(point.processes),
                "steps/s": "" if point.steps_per_s is None else f"{point.steps_per_s:.3g}",
                "one trial": "" if point.time_s is None else render_duration(point.time_s),
                "speed-up": f"{speed_up:.2f}" if has_speed else "",
                "efficiency": f"{100 * (speed_up or 0.0) / point.processes:.0f} %"
                if has_speed
                else "",
                "a rank": "" if point.rank_mb is None else render_mb(point.rank_mb),
                "trials/h: 1 of N": f"{3600 / point.time_s:.0f}" if point.time_s else "",
                "N of 1": f"{point.processes * 3600 / one_s:.0f}" if one_s else "",
            }
        )
    return f"one trial with more {what}\n{render_table(rows)}{_advise(scaling)}"


def _advise(scaling: Scaling) -> str:
    """Whether more trials at once, or more processes a trial, give more trials an hour."""
    last = scaling.points[-1]
    speed_up = scaling.speed_up(last)
    what = _WORDS[scaling.kind]
    if speed_up is None or last.processes == 1:
        return "more trials at once, or more processes a trial: too little was seen to tell\n"
    share = speed_up / last.processes
    text = f"{last.processes} {what} make one trial {speed_up:.2f} times as fast"
    if share >= 1:
        return f"{text}: give a trial {last.processes}; nothing is lost by it\n"
    return (
        f"{text}: {last.processes} trials at once with 1 each do {1 / share:.2f} times as many trials an hour, if they "
        f"do not disturb each other; give a trial more {what} where it does not fit, or one result is needed sooner\n"
    )


def render_scaling_svg(scaling: Scaling, title: str) -> str:
    """Speed-up over the number of processes, and the line of full efficiency. Raises ValueError without any."""
    seen = [(one.processes, value) for one in scaling.points if (value := scaling.speed_up(one))]
    if not seen:
        raise ValueError("no speed was seen: there is no curve to draw")
    counts = [count for count, _ in seen]
    wide, bottom = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM
    ticks = axis_ticks(max(counts[-1], *(value for _, value in seen)), 5)
    across = {count: _LEFT + place for count, place in places_of(counts, wide).items()}
    scale = (bottom - _TOP) / ticks[-1]
    body = [f'<text class="title" x="{_LEFT}" y="26">{escape(title)}: speed-up of one trial</text>']
    for tick in ticks:
        y = bottom - tick * scale
        body.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        body.append(
            f'<text class="small" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    ideal = " ".join(f"{across[count]:.1f},{bottom - count * scale:.1f}" for count in counts)
    line = " ".join(f"{across[count]:.1f},{bottom - value * scale:.1f}" for count, value in seen)
    body += [
        f'<polyline class="ideal" points="{ideal}"/>',
        f'<polyline class="mps line" points="{line}"/>',
    ]
    for count, value in seen:
        x, y = across[count], bottom - value * scale
        body.append(f'<circle class="mps" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        body.append(
            f'<text class="small" x="{x:.1f}" y="{y + 22:.1f}" text-anchor="middle">{100 * value / count:.0f} %</text>'
        )
        body.append(
            f'<text class="small" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{count}</text>'
        )
    what = _WORDS[scaling.kind]
    body.append(
        f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 14}" text-anchor="middle">{what} of the trial</text>'
    )
    body.append(
        f'<text class="small" x="{_LEFT}" y="46">dotted: an efficiency of 100 %; beside each point: its own</text>'
    )
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    label = escape(f"{title}: speed-up of one trial with 1 to {counts[-1]} {what}")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    ground = '<rect class="ground" width="100%" height="100%" rx="6"/>'
    return "\n".join([head, f"<style>{PICTURE_STYLE}</style>", ground, *body, "</svg>"]) + "\n"
