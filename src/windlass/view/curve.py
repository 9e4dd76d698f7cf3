"""What `windlass measure` found, as text: what one trial needs, how much more k of them do, and the choice."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.core.counted import counted
from windlass.core.units import render_duration, render_mb
from windlass.measured import MPS, PLAIN, Measurement, Probe, Round
from windlass.view.doctor import explain_seen
from windlass.view.table import render_table

_PLOT_ROWS, _PLOT_CELLS = 10, 52
_CHOSEN, _MARKS = "◆", {MPS: "●", PLAIN: "○"}
MODE_WORDS = {MPS: "with MPS", PLAIN: "without MPS"}
_ASCII = str.maketrans(
    {
        "◆": "#",
        "●": "*",
        "○": "o",
        "│": "|",
        "┤": "+",
        "└": "+",
        "┴": "+",
        "─": "-",
        "×": "x",
        "–": "-",
        "…": "~",
        "←": "<",
    }
)


@dataclass(frozen=True)
class Curve:
    """Rounds that are worth something as points (k, height) by mode, and what the height means."""

    unit: str
    points: dict[str, list[tuple[int, float]]]
    chosen: tuple[str, int, float] | None = None

    @property
    def highest(self) -> float:
        return max(height for points in self.points.values() for _, height in points)

    @property
    def ks(self) -> list[int]:
        return sorted({k for points in self.points.values() for k, _ in points})

    @property
    def one(self) -> float | None:
        """The height of one at a time."""
        alone = [
            height for mode in (PLAIN, MPS) for k, height in self.points.get(mode, []) if k == 1
        ]
        return alone[0] if alone else None


def curve_of(measurement: Measurement) -> Curve | None:
    """The curve in trials an hour, or in steps a second where not every round could say that. None without rounds."""
    sound = [one for one in measurement.rounds if one.rate]
    if not sound:
        return None
    if all(one.trials_per_h for one in sound):
        unit = "trials an hour"
        heights = [one.trials_per_h or 0.0 for one in sound]
    else:
        unit = f"{_unit(measurement)} a second"
        heights = [one.rate or 0.0 for one in sound]
    points: dict[str, list[tuple[int, float]]] = {}
    for one, height in sorted(zip(sound, heights, strict=True), key=lambda pair: pair[0].k):
        points.setdefault(one.mode, []).append((one.k, height))
    return Curve(unit, points, _chosen(measurement, points))


def _chosen(
    measurement: Measurement, points: dict[str, list[tuple[int, float]]]
) -> tuple[str, int, float] | None:
    """The point of the curve that was chosen, as mode, number of trials and height; None where there is none."""
    choice = measurement.choice
    if choice is None:
        return None
    heights = [height for k, height in points.get(choice.mode, []) if k == choice.k]
    return (choice.mode, choice.k, heights[0]) if heights else None


def _unit(measurement: Measurement) -> str:
    """What `rate` counts."""
    return "steps" if any(probe.step_s for probe in measurement.probes) else "trials"


def axis_ticks(highest: float, most: int) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    rough = highest / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def places_of(ks: Sequence[int], width: float) -> dict[int, float]:
    """Where each k stands between 0 and `width`: every doubling is as wide as any other."""
    span = math.log2(max(ks) / min(ks)) or 1.0
    return {k: width * math.log2(k / min(ks)) / span if len(ks) > 1 else width / 2 for k in ks}


def render_plot(measurement: Measurement, ascii_only: bool = False) -> str:
    """The curve for a terminal: k from left to right, what is done in a time upwards. Empty without a curve."""
    curve = curve_of(measurement)
    if curve is None:
        return ""
    ticks = axis_ticks(curve.highest, 5)
    places = {k: round(place) for k, place in places_of(curve.ks, _PLOT_CELLS - 1).items()}
    rows = [[" "] * (_PLOT_CELLS + 1) for _ in range(_PLOT_ROWS + 1)]
    for mode in (PLAIN, MPS):
        for k, height in curve.points.get(mode, []):
            row = rows[_row(height, ticks[-1])]
            mark = _CHOSEN if (mode, k, height) == curve.chosen else _MARKS[mode]
            row[places[k] if row[places[k]] == " " else places[k] + 1] = mark
    labels = {_row(tick, ticks[-1]): f"{tick:,g}" for tick in ticks}
    margin = max(map(len, labels.values()))
    lines = [curve.unit]
    for number, row in enumerate(rows[:-1]):
        edge = "┤" if number in labels else "│"
        lines.append(f"{labels.get(number, ''):>{margin}} {edge} {''.join(row)}".rstrip())
    axis = "".join("┴" if cell in places.values() else "─" for cell in range(_PLOT_CELLS))
    lines.append(f"{labels[_PLOT_ROWS]:>{margin}} └─{axis}")
    lines.append(f"{'':{margin}}   {_axis_labels(places)}  trials side by side")
    lines.append(f"{'':{margin}}   {_legend(curve, measurement)}")
    text = "\n".join(lines) + "\n"
    return _to_ascii(text) if ascii_only else text


def _row(height: float, top: float) -> int:
    return _PLOT_ROWS - round(height / top * _PLOT_ROWS)


def _axis_labels(places: dict[int, int]) -> str:
    """Each k below its place; one that would touch the one before it is left out."""
    line = ""
    for k, place in places.items():
        if place >= len(line) + (1 if line else 0):
            line += " " * (place - len(line)) + str(k)
    return line


def _legend(curve: Curve, measurement: Measurement) -> str:
    """What the signs of the plot mean."""
    parts = []
    if curve.chosen:
        parts.append(
            f"{_CHOSEN} chosen: {render_choice(curve.chosen[1], curve.chosen[0], measurement)}"
        )
    if MPS in curve.points:
        parts += [
            f"{_MARKS[mode]} {MODE_WORDS[mode]}" for mode in (MPS, PLAIN) if mode in curve.points
        ]
    return "   ".join(parts)


def render_choice(k: int, mode: str, measurement: Measurement, a_device: str = "") -> str:
    """`8 a GPU with MPS`; MPS is not spoken of where it was not tried."""
    tried = any(one.mode == MPS for one in measurement.rounds)
    return " ".join(word for word in (str(k), a_device, MODE_WORDS[mode] if tried else "") if word)


def render_curve_table(measurement: Measurement, width: int | None = None) -> str:
    """A row for every round. Columns of which nothing is known are left out."""
    unit = f"{_unit(measurement)}/s"
    plain_first = sorted(measurement.rounds, key=lambda one: (one.mode != PLAIN, one.k))
    base = next((one.rate for one in plain_first if one.k == 1 and one.rate), None)
    modes = {one.mode for one in measurement.rounds}
    rows: list[dict[str, Any]] = []
    for one in plain_first:
        slowdown = one.rate / base if one.rate and base else None
        rows.append(
            {
                "mode": one.mode if modes != {PLAIN} else None,
                "k": one.k,
                unit: _short(one.rate),
                "× of one": None if slowdown is None else round(slowdown, 2),
                "slowest": _short(one.slowest),
                "trials/h": _short(one.trials_per_h),
                "GPU GB": _gigabytes(one.gpu_mb),
                "memory GB": _gigabytes(one.memory_mb),
                "cores": None if one.cores is None else round(one.cores, 1),
                "GPU %": None if one.gpu_percent is None else round(one.gpu_percent),
                "one trial": None if one.trial_s is None else render_duration(one.trial_s),
                "note": _note(one, measurement),
            }
        )
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)] if rows else []
    return render_table(rows, known, width=width)


def _note(one: Round, measurement: Measurement) -> str | None:
    choice = measurement.choice
    marks = ["← chosen"] if choice and (choice.mode, choice.k) == (one.mode, one.k) else []
    return "; ".join([*marks, *([one.note] if one.note else [])]) or None


def _short(number: float | None) -> float | int | None:
    """Three digits, or all before the point."""
    if number is None or number == 0:
        return number
    return round(number) if abs(number) >= 100 else float(f"{number:.3g}")


def _gigabytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else round(megabytes / 1024, 1 if megabytes >= 1024 else 2)


def render_measurement(
    measurement: Measurement, arguments: Sequence[str] = ("study.yaml",), ascii_only: bool = False
) -> str:
    """The whole answer of `windlass measure`, down to the next command, in which `arguments` name the study."""
    parts = [_head(measurement)]
    if measurement.probes:
        parts.append(
            "what one trial needs\n" + render_table(_probe_rows(measurement)) + _ranks(measurement)
        )
    warnings = [*measurement.warnings, *_probe_warnings(measurement), *_reasons(measurement)]
    if warnings:
        parts.append("".join(f"warning: {text}\n" for text in warnings))
    if measurement.rounds:
        shared = "a GPU" if measurement.device else "this machine"
        parts += [
            f"how many share {shared} best\n" + render_curve_table(measurement),
            render_plot(measurement),
        ]
    parts.append(_choice(measurement, arguments))
    text = "\n".join(part for part in parts if part)
    return _to_ascii(text) if ascii_only else text


def _ranks(measurement: Measurement) -> str:
    """What one rank takes of a trial with a launcher; "" without one."""
    probes = [probe for probe in measurement.probes if probe.ranks and probe.rank_mb is not None]
    if not probes:
        return ""
    most = max(probes, key=lambda probe: probe.rank_mb or 0.0)
    parts = [f"{render_mb(most.rank_mb or 0.0)} of memory"]
    if most.rank_cores is not None:
        parts.append(f"{most.rank_cores:g} cores")
    if most.rank_gpu_mb is not None:
        parts.append(f"{render_mb(most.rank_gpu_mb)} of GPU memory")
    text = f"of its {most.ranks} ranks, the largest takes {', '.join(parts)}"
    if most.all_nodes_mb is not None:
        text += f"; the table is of the first node, all nodes together take {render_mb(most.all_nodes_mb)}"
    return text + "\n"


def _head(measurement: Measurement) -> str:
    """When and where was measured, on which device, and which frameworks the trials saw."""
    when = time.strftime("%d %b %H:%M", time.localtime(measurement.when)).lstrip("0")
    device = measurement.device
    has = [counted(measurement.cores, "core"), f"{render_mb(measurement.memory_mb)} of memory"]
    if device is not None:
        kind = (
            ""
            if device.kind == "gpu"
            else f", a {'MIG slice' if device.kind == 'mig' else device.kind}"
        )
        has.insert(0, f"{device.name} ({render_mb(device.memory_mb)}{kind})")
    lines = [
        f"measured {when} on {measurement.host} in {render_duration(measurement.took_s)}: {', '.join(has)}"
    ]
    frameworks = measurement.seen.get("frameworks")
    if frameworks:
        lines.append("; ".join(_say_framework(name, seen) for name, seen in frameworks.items()))
    return "\n".join(lines) + "\n"


def _say_framework(name: str, seen: Mapping[str, Any]) -> str:
    gpus = counted(seen.get("devices", 0), "GPU")
    built = f" (CUDA {seen['cuda']})" if seen.get("cuda") else ""
    error = f": {seen['error']}" if seen.get("error") else ""
    return f"{name} {seen.get('version', '')}{built} sees {gpus}{error}".replace("  ", " ")


def _names(measurement: Measurement) -> list[str]:
    """What each probe is called: its variant, and the settings in which the probes differ."""
    keys = list(dict.fromkeys(key for probe in measurement.probes for key in probe.settings))
    differing = [
        key
        for key in keys
        if key not in measurement.variants
        and len({repr(probe.settings.get(key)) for probe in measurement.probes}) > 1
    ]
    called = []
    for probe in measurement.probes:
        arguments = [
            f"{name}={value}"
            for name, value in zip(measurement.variants, probe.variant, strict=False)
        ]
        arguments += [f"{key}={probe.settings[key]}" for key in differing if key in probe.settings]
        called.append(" ".join(arguments) or probe.trial)
    return called


def _probe_rows(measurement: Measurement) -> list[dict[str, Any]]:
    """The trials that were measured alone, as rows of a table. Columns without any value are left out."""
    rows = [
        {
            "trial": name,
            "GPU memory": _gpu_memory(probe),
            "GPU %": None if probe.gpu_percent is None else round(probe.gpu_percent),
            "memory": render_mb(probe.memory_mb)
            + (f" ({probe.memory_source.upper()})" if probe.memory_source else ""),
            "cores": None if probe.cores is None else round(probe.cores, 1),
            "first step": None
            if probe.first_step_s is None
            else render_duration(probe.first_step_s),
            "steps/s": _short(1 / probe.step_s[1])
            if probe.step_s and probe.step_s[1] > 0
            else None,
            "one trial": _whole_time(probe),
            "read": _traffic(probe.read_mb, probe),
            "written": _traffic(probe.written_mb, probe),
            "bound by": probe.bound_by or None,
        }
        for name, probe in zip(_names(measurement), measurement.probes, strict=True)
    ]
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in known} for row in rows]


def _gpu_memory(probe: Probe) -> str | None:
    """Both figures: what the driver gave out, and what of it the framework knows of."""
    if probe.gpu_mb is None and probe.framework_mb is None:
        return None
    if probe.gpu_mb is None:
        return f"{render_mb(probe.framework_mb or 0)} by the framework"
    of_it = f", framework {render_mb(probe.framework_mb)}" if probe.framework_mb is not None else ""
    whole = " (of the whole device)" if probe.gpu_source == "device" else ""
    return f"{render_mb(probe.gpu_mb)}{whole}{of_it}"


def _whole_time(probe: Probe) -> str | None:
    if probe.time_s is None:
        return None
    low, middle, high = map(render_duration, probe.time_s)
    return middle if low == high else f"{middle} ({low}–{high})"


def _traffic(amount_mb: float, probe: Probe) -> str | None:
    """Bytes, and on which shared file system some of them were."""
    if amount_mb < 1:
        return None
    shared = (
        f" ({render_mb(probe.shared_mb)} or more on {', '.join(probe.shared_files)})"
        if probe.shared_mb >= 1
        else ""
    )
    return render_mb(amount_mb) + shared


def _probe_warnings(measurement: Measurement) -> list[str]:
    """The remarks on single trials. A remark that all trials share is shown once."""
    names_of_remark: dict[str, list[str]] = {}
    for name, probe in zip(_names(measurement), measurement.probes, strict=True):
        for text in (*probe.says, *([f"it ended by itself: {probe.cause}"] if probe.cause else [])):
            names_of_remark.setdefault(text, []).append(name)
    everybody = len(measurement.probes)
    return [
        text if len(names) == everybody else f"{', '.join(names)}: {text}"
        for text, names in names_of_remark.items()
    ]


def _reasons(measurement: Measurement) -> list[str]:
    """Why nobody may have touched the GPU, where the frameworks were asked."""
    if not measurement.seen.get("frameworks"):
        return []
    unused = "the framework sees the GPU: the program does not use it; is there a --device, or .to('cuda')?"
    return [f"likely because {reason}" for reason in explain_seen(measurement.seen) or [unused]]


def _choice(measurement: Measurement, arguments: Sequence[str]) -> str:
    """The choice with its reason, what to expect of it, and the command to type next."""
    choice = measurement.choice
    if choice is None:
        return f"next: {_plan_arguments(arguments)}\n"
    a_device = "a GPU" if measurement.device else "at a time"
    lines = [
        f"choice: {render_choice(choice.k, choice.mode, measurement, a_device)}: {choice.because}"
    ]
    expected = [f"about {choice.trials_per_h:,.0f} trials an hour"] if choice.trials_per_h else []
    if choice.trial_s:
        longer = f", {choice.slowdown:.1f} × as long as alone" if choice.k > 1 else ""
        expected.append(f"one takes {render_duration(choice.trial_s)}{longer}")
    lines += [f"  {'; '.join(expected)}"] if expected else []
    lines.append(
        f"next: {_plan_arguments(arguments)}   (what `windlass run` would ask for now, and why)"
    )
    return "\n".join(lines) + "\n"


def _plan_arguments(arguments: Sequence[str]) -> str:
    """A study that was given on the command line has to be given again: no file is called like it."""
    return (
        shlex.join(["windlass", "plan", *arguments])
        if arguments
        else "the same arguments after `windlass plan`"
    )


def _to_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
