"""The curve of a measurement as a picture (SVG): how much more k trials side by side do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from windlass.measured import MPS, PLAIN, Measurement
from windlass.view.curve import MODE_WORDS, Curve, axis_ticks, curve_of, places_of, render_choice

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 28, 64, 56
# Colours that hold on light and dark ground and for eyes that do not tell red from green.
PICTURE_STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.ground { fill: #ffffff } .title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #57606a }
.grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #57606a; stroke-width: 1 }
.ideal { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 2 4; fill: none }
.mps { stroke: #0969da; fill: #0969da } .plain { stroke: #bc4c00; fill: #bc4c00 }
.line { stroke-width: 2.5; fill: none } .ring { stroke-width: 2.5; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .ground { fill: #0d1117 } .small { fill: #9198a1 } .grid { stroke: #30363d }
  .axis { stroke: #9198a1 } .ideal { stroke: #6e7681 } .mps { stroke: #4493f8; fill: #4493f8 }
  .plain { stroke: #f0883e; fill: #f0883e } .line, .ring { fill: none }
}"""


def render_curve_svg(measurement: Measurement, title: str = "") -> str:
    """The curve as a picture that stands alone, readable on light and on dark ground. Raises ValueError without one."""
    curve = curve_of(measurement)
    if curve is None:
        raise ValueError("no round was worth anything: there is no curve to draw")
    ticks = axis_ticks(curve.highest, 5)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    across = {k: _LEFT + place for k, place in places_of(curve.ks, wide).items()}
    scale = high / ticks[-1]
    bottom = _TOP + high
    named = title or (measurement.device.name if measurement.device else measurement.host)
    body = [
        f'<text class="title" x="{_LEFT}" y="26">{escape(named)}</text>',
        *_axes(curve, ticks, across, scale),
        *_ideal(curve, across, scale),
    ]
    for mode in (PLAIN, MPS):
        body += _line(
            mode, [(across[k], bottom - height * scale) for k, height in curve.points.get(mode, [])]
        )
    if curve.chosen:
        mode, k, height = curve.chosen
        body.append(
            f'<circle class="{mode} ring" cx="{across[k]:.1f}" cy="{bottom - height * scale:.1f}" r="10"/>'
        )
    body += _legend(curve, measurement)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(_alt(curve, named))}">'
    ground = '<rect class="ground" width="100%" height="100%" rx="6"/>'
    return "\n".join([head, f"<style>{PICTURE_STYLE}</style>", ground, *body, "</svg>"]) + "\n"


def _alt(curve: Curve, named: str) -> str:
    """The picture in a sentence."""
    most = f"{named}: {curve.unit} of {curve.ks[0]} to {curve.ks[-1]} trials side by side"
    return (
        f"{most}; chosen: {curve.chosen[1]} {MODE_WORDS[curve.chosen[0]]}" if curve.chosen else most
    )


def _axes(
    curve: Curve, ticks: Sequence[float], across: dict[int, float], scale: float
) -> list[str]:
    """The axes with their ticks.

    Numbers below the horizontal axis are left out where they would overlap.
    """
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for tick in ticks:
        y = bottom - tick * scale
        parts.append(
            f'<line class="{"grid" if tick else "axis"}" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="small" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>'
        )
    last = -math.inf
    for k, x in across.items():
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        )
        if x - last >= 20:
            parts.append(
                f'<text class="small" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{k}</text>'
            )
            last = x
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">trials side by side</text>'
    )
    y = (_TOP + bottom) / 2
    parts.append(
        f'<text x="18" y="{y:.0f}" text-anchor="middle" transform="rotate(-90 18 {y:.0f})">{curve.unit}</text>'
    )
    return parts


def _ideal(curve: Curve, across: dict[int, float], scale: float) -> list[str]:
    """What k trials would do if sharing cost nothing, as far as it is inside the picture."""
    if curve.one is None:
        return []
    bottom = _HEIGHT - _BOTTOM
    path = " ".join(f"{x:.1f},{bottom - k * curve.one * scale:.1f}" for k, x in across.items())
    inside = f'<clipPath id="inside"><rect y="{_TOP}" width="{_WIDTH}" height="{bottom - _TOP}"/></clipPath>'
    return (
        [inside, f'<polyline class="ideal" clip-path="url(#inside)" points="{path}"/>']
        if len(across) > 1
        else []
    )


def _line(mode: str, points: Sequence[tuple[float, float]]) -> list[str]:
    """One mode's line with its marks: circles with MPS, squares without, so that colour is not needed."""
    if not points:
        return []
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline class="{mode} line" points="{path}"/>',
        *(_mark(mode, x, y) for x, y in points),
    ]


def _mark(mode: str, x: float, y: float) -> str:
    if mode == MPS:
        return f'<circle class="{mode}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    return f'<rect class="{mode}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _legend(curve: Curve, measurement: Measurement) -> list[str]:
    """The signs of the two ways of sharing, the ideal line, and the choice."""
    parts, x, y = [], float(_LEFT), 46
    for mode in (MPS, PLAIN):
        if mode in curve.points and MPS in curve.points:
            parts += [
                _mark(mode, x + 5, y - 4),
                f'<text class="small" x="{x + 16:.0f}" y="{y}">{MODE_WORDS[mode]}</text>',
            ]
            x += 110
    if curve.one is not None and len(curve.ks) > 1:
        parts.append(
            f'<line class="ideal" x1="{x:.0f}" x2="{x + 24:.0f}" y1="{y - 4}" y2="{y - 4}"/>'
        )
        parts.append(f'<text class="small" x="{x + 32:.0f}" y="{y}">if sharing cost nothing</text>')
        x += 178
    if curve.chosen and measurement.choice:
        mode, k, _ = curve.chosen
        chosen = f"chosen: {render_choice(k, mode, measurement)}, {measurement.choice.gain:.1f} ×"
        parts.append(f'<circle class="{mode} ring" cx="{x + 8:.0f}" cy="{y - 4}" r="7"/>')
        parts.append(f'<text class="small" x="{x + 22:.0f}" y="{y}">{escape(chosen)}</text>')
    return parts
