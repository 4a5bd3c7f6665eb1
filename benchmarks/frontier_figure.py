"""The frontier drawn: gap, accuracy under the flow and swings of the step, against evaluations per iteration."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from windermere.report.palette import CLASSES, FAINT, INK
from windermere.report.style import add_legend, house_style, new_figure, save

Results = Mapping[str, Mapping[str, Any]]

LOOKS = {
    "constant": ("constant", FAINT, "v"),
    "paper": ("the paper's algorithm, by threshold", CLASSES[1], "o"),
    "steady": ("steady, by target", CLASSES[0], "s"),
}
"""By rule: words, colour and marker."""
BESIDE = [
    *((0, 11), (0, -11), (18, 0), (-18, 0), (18, 9), (-18, 9), (18, -9), (-18, -9)),
    *((0, 22), (0, -22), (30, 0), (-30, 0), (30, 12), (-30, 12)),
]
"""Where a setting may be written, in points from its mark: the first place that is free is taken."""
LETTER, MARK = (5.8, 11.0), 5.0
"""Width and height of a letter, and half of a mark's, in points."""
LEAST_GAP = 0.001
"""One sample of a thousand: smaller gaps are drawn there, as the axis is logarithmic."""


def gaps(result: Mapping[str, Any]) -> list[float]:
    """Between own solver and flow, whichever scores better, by seed."""
    return [round(abs(own - flow), 9) for own, flow in zip(result["own"], result["flow"], strict=True)]


def _drawn_gaps(result: Mapping[str, Any]) -> list[float]:
    return [max(gap, LEAST_GAP) for gap in gaps(result)]


@house_style
def draw(results: Results, folder: Path) -> list[Path]:
    """One figure for each data set and pair of methods: `frontier_DATA_PAIR.png`."""
    groups = dict.fromkeys(tuple(name.split(" ")[:2]) for name in results if not name.startswith("constants"))
    paths = []
    for data, pair in groups:
        chosen = {name: result for name, result in results.items() if name.split(" ")[:2] == [data, pair]}
        if len(chosen) < 3:
            continue  # no line to draw
        paths.append(folder / f"frontier_{data}_{pair.replace('/', '-')}.png")
        _draw_group(data, pair, chosen, paths[-1])
    return paths


def _draw_group(data: str, pair: str, results: Results, path: Path) -> None:
    figure = new_figure(15, 5.5)
    body, foot = figure.subfigures(2, 1, squeeze=False, height_ratios=[12, 1])[:, 0]
    seeds = len(next(iter(results.values()))["own"])
    body.suptitle(f"{data}, {pair}, {seeds} seeds", fontsize=12)
    what = "tolerance" if next(iter(results.values()))["config"]["solver"]["kind"] == "Adaptive" else "step"
    panels = body.subplots(1, 3)
    _draw_panel(panels[0], results, _drawn_gaps, "gap between own solver and flow (smaller ones at 0.1%)")
    _draw_panel(panels[1], results, lambda r: r["flow"], "accuracy under the flow")
    swinging = {name: result for name, result in results.items() if " constant " not in name}
    _draw_panel(panels[2], swinging, lambda r: r["std_log2"], f"std of log2({what}), second half of training")
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda gap, _: f"{100 * gap:g}%"))
    panels[1].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panels[2].set(xlim=panels[0].get_xlim(), ylim=(0, None))
    figure.draw_without_rendering()  # where the marks are
    for axes in panels:
        _write_settings(axes)
    marks = [Line2D([], [], color=c, marker=m, label=label) for label, c, m in LOOKS.values()]
    one = Line2D([], [], color=INK, marker=".", linestyle="", alpha=0.5, label="one seed")
    add_legend(foot, [*marks, one])
    save(figure, path)


def _draw_panel(axes: Axes, results: Results, value: Any, title: str) -> None:
    """Means joined by a line for each rule, and every seed as a dot."""
    for kind, (_, color, marker) in LOOKS.items():
        chosen = [(name.split(" ")[-1], r) for name, r in results.items() if name.split(" ")[2] == kind]
        chosen.sort(key=lambda pair: fmean(pair[1]["evaluations"]))
        x = [fmean(r["evaluations"]) for _, r in chosen]
        y = [fmean(value(r)) for _, r in chosen]
        axes.plot(
            x, y, color=color, marker=marker, markersize=7, linewidth=1.2, gid=" ".join(name for name, _ in chosen)
        )
        for _, result in chosen:
            axes.plot(result["evaluations"], value(result), ".", color=color, alpha=0.45, markersize=4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("evaluations per iteration, checks included")
    axes.set_title(title, fontsize=10)


def _write_settings(axes: Axes) -> None:
    """Each beside its mark, where it covers no mark and no other setting."""
    points = 72 / axes.figure.dpi
    lines = [
        (line, str(line.get_gid()).split(), np.asarray(line.get_xydata())) for line in axes.lines if line.get_gid()
    ]
    marks = [place * points for _, _, places in lines for place in axes.transData.transform(places)]
    taken: list[tuple[float, ...]] = [(x, y, MARK, MARK) for x, y in marks]
    for line, settings, places in lines:
        for setting, mark in zip(settings, places, strict=True):
            x, y = axes.transData.transform(mark) * points
            size = (LETTER[0] * len(setting) / 2, LETTER[1] / 2)
            boxes = {aside: (x + aside[0], y + aside[1], *size) for aside in BESIDE}
            aside = next((at for at, box in boxes.items() if not any(_meet(box, other) for other in taken)), BESIDE[0])
            taken.append(boxes[aside])
            look: dict[str, Any] = {"fontsize": 8, "color": line.get_color(), "ha": "center", "va": "center"}
            axes.annotate(setting, tuple(mark), aside, textcoords="offset points", **look)


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether two boxes, each a centre and half its width and height, have something in common."""
    return abs(one[0] - other[0]) < one[2] + other[2] and abs(one[1] - other[1]) < one[3] + other[3]
