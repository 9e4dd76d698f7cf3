"""What a measurement looks like: the plot, the table, the picture and the whole report, from curves recorded on a GPU."""

from __future__ import annotations

from dataclasses import asdict, replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.measured import Choice, MeasuredDevice, Measurement, Probe, Round, parse_measurement
from windlass.view.curve import (
    axis_ticks,
    curve_of,
    render_curve_table,
    render_measurement,
    render_plot,
)
from windlass.view.curve_svg import render_curve_svg

SVG = "{http://www.w3.org/2000/svg}"
# A small CNN on an H200: steps a second of k processes, and the device's memory in MB.
CNN = {
    "plain": {1: (339, 1039), 2: (688, 2074), 4: (858, 4146), 8: (843, 8288), 16: (857, 16575)},
    "mps": {1: (380, 1107), 2: (697, 2138), 4: (1301, 4199), 8: (2025, 8322), 16: (1989, 16571)},
}
ROUNDS = tuple(
    Round(mode, k, float(rate), rate / k, gpu_mb=float(gpu_mb), cores=k * 1.04)  # type: ignore[arg-type]
    for mode, rounds in CNN.items()
    for k, (rate, gpu_mb) in rounds.items()
)
PROBE = Probe(
    "k3xw7q2a",
    {"algo": "ppo", "lr": 0.1, "width": 64},
    variant=("ppo",),
    gpu_mb=1039.0,
    gpu_source="process",
    framework_mb=272.0,
    gpu_percent=41.0,
    memory_mb=2100.0,
    memory_source="pss",
    cores=1.0,
    first_step_s=9.6,
    step_s=(0.0028, 0.00295, 0.0031),
    steps=20000.0,
    time_s=(60.0, 68.0, 80.0),
    bound_by="the GPU",
)
MEASUREMENT = Measurement(
    1794750000.0,
    "d1",
    "node17",
    16,
    131072,
    MeasuredDevice("NVIDIA H200", 143771),
    probes=(PROBE,),
    rounds=ROUNDS,
    choice=Choice(8, "mps", "16 gain nothing more", 1.35, 5.97, 424.0, 90.0),
    took_s=100.0,
)


class TestPlot:
    def test_the_chosen_one_stands_highest_above_its_k(self) -> None:
        lines = render_plot(MEASUREMENT).splitlines()
        (chosen,) = [line for line in lines[:-1] if "◆" in line]
        assert lines.index(chosen) == min(
            lines.index(line) for line in lines[:-1] if any(m in line for m in "◆●○")
        )
        labels = next(line for line in lines if "side by side" in line)
        assert chosen.index("◆") == labels.index("8")
        assert lines[0] == "steps a second"
        assert "◆ chosen: 8 with MPS" in lines[-1]

    def test_every_round_has_its_mark(self) -> None:
        drawn = "\n".join(render_plot(MEASUREMENT).splitlines()[:-1])
        assert (drawn.count("○"), drawn.count("●"), drawn.count("◆")) == (5, 4, 1)

    def test_without_unicode_it_has_the_same_shape(self) -> None:
        plain, pretty = render_plot(MEASUREMENT, ascii_only=True), render_plot(MEASUREMENT)
        assert plain.isascii()
        assert [len(line) for line in plain.splitlines()] == [
            len(line) for line in pretty.splitlines()
        ]
        assert "# chosen: 8 with MPS" in plain

    def test_where_mps_was_not_tried_nobody_speaks_of_it(self) -> None:
        rounds = tuple(replace(one, gpu_mb=None) for one in ROUNDS if one.mode == "plain")
        choice = Choice(4, "plain", "8 gain nothing more")
        alone = replace(MEASUREMENT, device=None, probes=(), rounds=rounds, choice=choice)
        text = render_measurement(alone)
        assert "MPS" not in text and "mode" not in text and "GPU" not in text
        assert "choice: 4 at a time: 8 gain nothing more" in text
        assert "trials/s" in text and "trials a second" in text

    def test_hours_where_every_round_knows_them(self) -> None:
        rounds = tuple(replace(one, trials_per_h=(one.rate or 0) / 100 * 36) for one in ROUNDS)
        curve = curve_of(replace(MEASUREMENT, rounds=rounds))
        assert curve is not None and curve.unit == "trials an hour"
        assert curve.chosen == ("mps", 8, pytest.approx(729))
        mixed = curve_of(replace(MEASUREMENT, rounds=(*rounds[:-1], ROUNDS[-1])))
        assert mixed is not None and mixed.unit == "steps a second"

    def test_without_rounds_there_is_none(self) -> None:
        failed = Round("plain", 1, note="it ended at once")
        assert render_plot(replace(MEASUREMENT, rounds=(failed,))) == ""
        with pytest.raises(ValueError, match="no curve"):
            render_curve_svg(replace(MEASUREMENT, rounds=()))

    def test_one_round_is_a_plot_too(self) -> None:
        only = replace(MEASUREMENT, rounds=ROUNDS[:1], choice=Choice(1, "plain", "no other fits"))
        assert "◆" in render_plot(only)
        ElementTree.fromstring(render_curve_svg(only))


@given(st.floats(1e-6, 1e12), st.integers(3, 8))
def test_ticks_are_few_and_reach_the_top(highest: float, most: int) -> None:
    ticks = axis_ticks(highest, most)
    assert ticks[0] == 0 and len(ticks) <= most + 2
    assert ticks[-1] >= highest * (1 - 1e-6) and ticks[-2] < highest


class TestTable:
    def test_figures_are_against_one_at_a_time_without_mps(self) -> None:
        lines = render_curve_table(MEASUREMENT).splitlines()
        header = lines[0].split()
        assert [header[0], header[1], header[2]] == ["mode", "k", "steps/s"]
        (chosen,) = [line for line in lines if "← chosen" in line]
        assert chosen.split()[:6] == ["mps", "8", "2025", "5.97", "253.0", "8.1"]

    def test_what_failed_says_why_and_what_is_unknown_takes_no_room(self) -> None:
        failed = Round("mps", 32, note="out of GPU memory")
        text = render_curve_table(replace(MEASUREMENT, rounds=(*ROUNDS, failed)))
        assert text.splitlines()[-1].split(maxsplit=2) == ["mps", "32", "out of GPU memory"]
        assert "memory GB" not in text and "one trial" not in text


class TestPicture:
    def test_it_is_a_picture_of_every_round(self) -> None:
        root = ElementTree.fromstring(render_curve_svg(MEASUREMENT))
        lines = root.findall(f"{SVG}polyline")
        assert [line.get("class") for line in lines] == ["ideal", "plain line", "mps line"]
        assert all(len((line.get("points") or "").split()) == 5 for line in lines)
        words = ["".join(one.itertext()) for one in root.findall(f"{SVG}text")]
        assert {"1", "2", "4", "8", "16", "trials side by side", "steps a second"} <= set(words)
        assert "chosen: 8 with MPS, 6.0 ×" in words

    def test_higher_is_more_and_all_is_inside(self) -> None:
        root = ElementTree.fromstring(render_curve_svg(MEASUREMENT))
        line = next(one for one in root.findall(f"{SVG}polyline") if one.get("class") == "mps line")
        points = [
            tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()
        ]
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        order = sorted(range(5), key=lambda number: points[number][1], reverse=True)
        assert order == [0, 1, 2, 4, 3]
        _, _, wide, high = map(float, (root.get("viewBox") or "").split())
        assert all(0 < x < wide and 0 < y < high for x, y in points)

    def test_names_are_not_taken_for_markup(self) -> None:
        root = ElementTree.fromstring(render_curve_svg(MEASUREMENT, title='a <b> & "c"'))
        assert root.findtext(f"{SVG}text") == 'a <b> & "c"'

    def test_it_is_readable_on_dark_ground(self) -> None:
        assert "prefers-color-scheme: dark" in render_curve_svg(MEASUREMENT)


class TestReport:
    def test_it_says_what_one_trial_needs(self) -> None:
        text = render_measurement(MEASUREMENT, ["small.yaml"])
        assert "NVIDIA H200 (140 GB), 16 cores, 128 GB of memory" in text
        assert "1 GB, framework 272 MB" in text
        assert "2.05 GB (PSS)" in text and "the GPU" in text
        assert "339" in text and "1 min 8 s (1 min–1 min 20 s)" in text
        assert "choice: 8 a GPU with MPS: 16 gain nothing more" in text
        assert "about 424 trials an hour; one takes 1 min 30 s, 1.4 × as long as alone" in text
        assert text.rstrip().splitlines()[-1].startswith("next: windlass plan small.yaml")

    def test_trials_are_called_by_what_sets_them_apart(self) -> None:
        other = replace(
            PROBE, trial="z", settings={"algo": "dqn", "lr": 0.1, "width": 256}, variant=("dqn",)
        )
        text = render_measurement(replace(MEASUREMENT, variants=("algo",), probes=(PROBE, other)))
        assert "algo=ppo width=64" in text and "algo=dqn width=256" in text
        assert "lr=" not in text

    def test_a_warning_of_one_trial_names_it_and_one_of_all_is_said_once(self) -> None:
        grows = replace(
            PROBE,
            settings={"lr": 1},
            says=("still growing at 40 MB/min", "one core is busy all the time"),
        )
        calm = replace(PROBE, settings={"lr": 2}, says=("one core is busy all the time",))
        text = render_measurement(
            replace(MEASUREMENT, probes=(grows, calm), warnings=("the GPU is not ours alone",))
        )
        warnings = [line for line in text.splitlines() if line.startswith("warning")]
        assert warnings == [
            "warning: the GPU is not ours alone",
            "warning: lr=1: still growing at 40 MB/min",
            "warning: one core is busy all the time",
        ]

    def test_without_unicode(self) -> None:
        assert render_measurement(MEASUREMENT, ascii_only=True).isascii()

    def test_what_the_node_wrote_reads_the_same(self) -> None:
        written = {"version": 1, "later": "unknown", **asdict(MEASUREMENT)}
        assert render_measurement(parse_measurement(written)) == render_measurement(MEASUREMENT)

    def test_what_a_framework_sees(self) -> None:
        seen = {
            "torch": {"version": "2.6", "cuda": None, "devices": 0},
            "jax": {"devices": 0, "error": "no plugin"},
        }
        text = render_measurement(replace(MEASUREMENT, seen={"frameworks": seen}))
        assert "warning: likely because torch 2.6 sees 0 devices: it is a CPU-only build" in text
        assert "torch 2.6 sees 0 GPUs; jax sees 0 GPUs: no plugin\n" in text

    def test_nothing_but_probes(self) -> None:
        text = render_measurement(replace(MEASUREMENT, rounds=(), choice=None))
        assert "how many" not in text and "next: windlass plan study.yaml" in text
