"""What bench/gpu_packing.py found, as Markdown: a section a workload, and one page for all."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windlass.measured import Choice, MeasuredDevice, Measurement, Probe, Round, parse_measurement
from windlass.view.curve_svg import render_curve_svg

NAMES = {
    "mlp": "MLP, RL-sized (batch of 64 × 16, 256 wide)",
    "cnn": "CNN on 32 × 32 images (batch of 128)",
    "transformer": "transformer (6 layers of 512, bf16, batch of 16 × 256)",
}
# Wanted at least: the choice over one at a time, the choice over as many as fit.
WANTED = {"mlp": (10.0, 2.0), "cnn": (5.0, 2.0), "transformer": (3.0, None)}
Found = dict[str, Any]


@dataclass(frozen=True)
class Check:
    name: str
    figure: str
    wanted: str
    holds: bool | None = None  # None: for information


def find_checks(found: Found) -> list[Check]:
    """All that can be said about what is there."""
    over_alone, over_fit = WANTED[found["workload"]]
    checks = []
    if "choice" in found and "alone" in found:
        gain = found["alone"]["makespan_s"] / found["choice"]["makespan_s"]
        checks.append(
            Check(
                "Windlass's choice over one at a time",
                f"{gain:.1f} ×",
                f"{over_alone:g} ×",
                gain >= over_alone,
            )
        )
    if "choice" in found and "fit" in found:
        gain = found["fit"]["makespan_s"] / found["choice"]["makespan_s"]
        holds = gain >= over_fit if over_fit else None
        checks.append(
            Check(
                "over as many as fit",
                f"{gain:.1f} ×",
                f"{over_fit:g} ×" if over_fit else "–",
                holds,
            )
        )
    checks += _check_choice(found) + _check_memory(found) + _check_estimate(found)
    if "measure_s" in found:
        checks.append(
            Check(
                "`windlass measure`",
                f"{found['measure_s']:.0f} s",
                "100 s",
                found["measure_s"] <= 100,
            )
        )
    if "cold" in found:
        whole_s = found["cold"]["trial_s"] * found["trials"]
        few, steps = found["cold"]["done"], found["cold"]["steps"]
        name = f"one at a time with cold starts and {steps:,} steps, by {few} of them"
        checks.append(Check(name, f"{whole_s:.0f} s", "–"))
    if "warm" in found:
        cold_s, warm_s = found["warm"]["cold_start_s"], found["warm"]["start_s"]
        checks.append(Check("start of a trial: cold, warm", f"{cold_s:.1f} s, {warm_s:.1f} s", "–"))
    return checks


def best_of(rows: Sequence[Found]) -> Found:
    return max(rows, key=lambda row: float(row["rate"]))


def _check_choice(found: Found) -> list[Check]:
    choice = (found.get("measured") or {}).get("choice")
    rows = found.get("sweep", ())
    chosen = next(
        (
            row
            for row in rows
            if choice and (row["mode"], row["k"]) == (choice["mode"], choice["k"])
        ),
        None,
    )
    if chosen is None:
        return []
    share = chosen["rate"] / best_of(rows)["rate"]
    return [
        Check(
            "steps a second at the choice, of the best k tried",
            f"{share:.0%}",
            "90 %",
            share >= 0.9,
        )
    ]


def _check_memory(found: Found) -> list[Check]:
    peaks = [
        probe["gpu_mb"]
        for probe in (found.get("measured") or {}).get("probes", ())
        if probe.get("gpu_mb")
    ]
    if not peaks or not found.get("peak_mb"):
        return []
    off = max(peaks) / found["peak_mb"] - 1
    return [
        Check(
            "peak GPU memory as measured, against NVML polled every 20 ms",
            f"{off:+.1%}",
            "5 %",
            abs(off) <= 0.05,
        )
    ]


def _check_estimate(found: Found) -> list[Check]:
    estimate_s = found.get("choice", {}).get("estimate_s")
    if not estimate_s:
        return []
    off = estimate_s / found["choice"]["makespan_s"] - 1
    return [
        Check(
            "estimate before the start, against what it took",
            f"{off:+.0%}",
            "25 %",
            abs(off) <= 0.25,
        )
    ]


def render_result(found: Found) -> str:
    """One workload: how long the study took each way, every k, and what was wanted."""
    about = f"{found['trials']} trials of {found.get('steps', 0):,} steps each."
    if found["is_trial"]:
        about = f"**The benchmark was only tried out: this is no result.** {about}"
    parts = [
        f"## {NAMES[found['workload']]}\n\n{about}\n",
        _render_ways(found),
        _render_starts(found),
    ]
    parts.append(_render_checks(found))
    if found.get("sweep"):
        parts.append(
            "Steps a second of k processes, found without Windlass (times of one alone without MPS):\n"
        )
        parts.append(_render_sweep(found["sweep"], (found.get("measured") or {}).get("choice")))
    return "\n".join(part for part in parts if part)


def _render_ways(found: Found) -> str:
    lines = [
        "| how | at a time | first start to last end | whole command | trials a GPU-hour |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    ways = {
        "alone": "one at a time",
        "fit": "as many as fit, without MPS",
        "choice": "as Windlass chooses",
    }
    for part, name in ways.items():
        took = found.get(part)
        if took is None:
            continue
        slots = took.get("slots", 1)
        chosen = (found.get("measured") or {}).get("choice") or {}
        mode = ", with MPS" if part == "choice" and chosen.get("mode") == "mps" else ""
        times = f"{took['makespan_s']:.1f} s | {took['command_s']:.1f} s"
        lines.append(f"| {name}{mode} | {slots} | {times} | {took['trials_per_h']:,.0f} |")
        if took["done"] != found["trials"]:
            lines.append(f"| ({took['done']} of {found['trials']} done) | | | | |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _render_starts(found: Found) -> str:
    """What trials as short as these spend on beginning, and why they gain less than steps alone would."""
    measured = found.get("measured") or {}
    choice = measured.get("choice") or {}
    chosen = [
        one
        for one in measured.get("rounds", ())
        if (one["mode"], one["k"]) == (choice.get("mode"), choice.get("k"))
    ]
    spans = (found.get("choice") or {}).get("spans")
    if not chosen or not spans or not chosen[0].get("startup_s"):
        return ""
    usual = sorted(span[1] for span in spans)[len(spans) // 2]
    first_s = min(span[1] for span in spans[: choice["k"]]) - usual
    return (
        f"Of a trial's {usual:.1f} s among {choice['k']}, {chosen[0]['startup_s']:.1f} s go by before its first step; "
        f"the first {choice['k']} wait {first_s:.0f} s more until PyTorch is imported.\n"
    )


def _render_checks(found: Found) -> str:
    marks = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | figure | wanted | holds |", "| --- | ---: | ---: | --- |"]
    lines += [
        f"| {one.name} | {one.figure} | {one.wanted} | {marks[one.holds]} |"
        for one in find_checks(found)
    ]
    return "\n".join(lines) + "\n"


def _render_sweep(rows: Sequence[Found], choice: Found | None) -> str:
    ks = sorted({row["k"] for row in rows})
    rates = {(row["mode"], row["k"]): row["rate"] for row in rows}
    base = rates.get(("plain", 1))
    lines = [
        "| | " + " | ".join(f"k = {k}" for k in ks) + " |",
        "| --- | " + " | ".join("---:" for _ in ks) + " |",
    ]
    for mode, name in (("plain", "without MPS"), ("mps", "with MPS")):
        cells = []
        for k in ks:
            rate = rates.get((mode, k))
            text = (
                "–" if rate is None else f"{rate:,.0f}" + (f" ({rate / base:.1f})" if base else "")
            )
            mine = choice is not None and (choice["mode"], choice["k"]) == (mode, k)
            cells.append(f"**{text}**" if mine else text)
        if any(cell != "–" for cell in cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def read_results(folders: Sequence[Path]) -> list[Found]:
    """What runs left in these folders, by workload; later folders add to earlier ones."""
    found: dict[str, Found] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            data = json.loads(path.read_text())
            if isinstance(data, dict) and data.get("workload") in NAMES:
                found.setdefault(data["workload"], {}).update(data)
    return [found[workload] for workload in NAMES if workload in found]


def measurement_of(found: Found) -> Measurement:
    """The benchmark's own sweep in the shape of a measurement, with Windlass's choice; else what Windlass measured."""
    measured = parse_measurement(found["measured"]) if found.get("measured") else None
    if measured is not None and not found.get("sweep"):
        return measured
    rows = found["sweep"]
    base = next(row["rate"] for row in rows if row["k"] == 1)
    device = (
        MeasuredDevice(found["device"], found["gpu_memory_mb"] or 0)
        if found.get("device")
        else None
    )
    return Measurement(
        found["when"],
        "",
        "",
        found["cores"],
        0,
        device,
        probes=(Probe("", {}, step_s=(1 / base, 1 / base, 1 / base)),),
        rounds=tuple(Round(row["mode"], row["k"], row["rate"], row["slowest"]) for row in rows),
        choice=_choice_in(rows, measured.choice if measured is not None else None, base),
    )


def _choice_in(rows: Sequence[Found], choice: Choice | None, base: float) -> Choice | None:
    """Windlass's choice, with what it brings by the benchmark's own account."""
    chosen = [
        row
        for row in rows
        if choice is not None and (row["mode"], row["k"]) == (choice.mode, choice.k)
    ]
    return replace(choice, gain=chosen[0]["rate"] / base) if choice is not None and chosen else None


def write_page(results: Sequence[Found], docs: Path) -> None:
    """docs/gpu-packing.md and a picture a workload."""
    if not results:
        raise SystemExit("there is no result in these folders")
    first = results[0]
    when = time.strftime("%d %B %Y", time.gmtime(first["when"])).lstrip("0")
    where = f"one {first['device'] or 'machine without a GPU'} with {first['cores']} cores"
    parts = [
        "# Packing one GPU\n",
        f"A study of {first['trials']} short trials on {where}, {when}, PyTorch {first['torch']}:\n"
        "one at a time, as many as fit into the GPU's memory, and as many as Windlass chooses after\n"
        "`windlass measure`. `bench/gpu_packing.py` did this, and its `--report` wrote this page. All starts are\n"
        "warm. The figures are from machines of the same kind, not all from one; [packing](packing.md) explains\n"
        "what they mean.\n",
        _render_summary(results),
        "The first trials wait for the import of PyTorch, whichever way it is done: the longer the trials, the less\n"
        "that counts, and the closer the ratios come to those of the steps a second below.\n",
    ]
    for found in results:
        picture = f"gpu-packing-{found['workload']}.svg"
        if found.get("measured") or found.get("sweep"):
            (docs / picture).write_text(
                render_curve_svg(measurement_of(found), NAMES[found["workload"]])
            )
            section = render_result(found).rstrip()
            parts.append(f"{section}\n\n![Steps a second of k trials side by side]({picture})\n")
        else:
            parts.append(render_result(found))
    (docs / "gpu-packing.md").write_text("\n".join(parts))
    print(f"wrote {docs / 'gpu-packing.md'}")


def _render_summary(results: Sequence[Found]) -> str:
    lines = [
        "| workload | one at a time | as many as fit | as Windlass chooses | over the first | over the second |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for found in results:
        if not {"alone", "choice"} <= set(found):
            continue
        alone_s, choice_s = found["alone"]["makespan_s"], found["choice"]["makespan_s"]
        choice = (found.get("measured") or {}).get("choice") or {}
        mps = " with MPS" if choice.get("mode") == "mps" else ""
        fit, over_fit = "–", "–"
        if "fit" in found:
            fit_s = found["fit"]["makespan_s"]
            fit, over_fit = (
                f"{fit_s:.0f} s ({found['fit']['slots']} at a time)",
                f"{fit_s / choice_s:.1f} ×",
            )
        lines.append(
            f"| {found['workload']} | {alone_s:.0f} s | {fit} | {choice_s:.0f} s ({found['choice']['slots']} at a time"
            f"{mps}) | {alone_s / choice_s:.1f} × | {over_fit} |"
        )
    measured_s = [found["measure_s"] for found in results if "measure_s" in found]
    if measured_s:
        lines.append(f"\n`windlass measure` took {sum(measured_s):.0f} s in all.")
    return "\n".join(lines) + "\n"
