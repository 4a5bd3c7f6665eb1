"""The frontier drawn: gap, accuracy under the flow and swings of the step, against evaluations per iteration."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from windermere.report.palette import CLASSES, FAINT, INK
from windermere.report.style import add_legend, house_style, new_figure, save

Results = Mapping[str, Mapping[str, Any]]

LOOKS = {
    "constant": ("constant", FAINT, "v", (8, -3)),
    "paper": ("the paper's algorithm, by threshold", CLASSES[1], "o", (-4, 8)),
    "steady": ("steady, by target", CLASSES[0], "s", (-6, -15)),
}
"""By rule: words, colour, marker, and where its setting is written."""
ASIDE = (9, 3)
"""Where it is written if a neighbour's is in the way."""
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
    marks = [Line2D([], [], color=c, marker=m, label=label) for label, c, m, _ in LOOKS.values()]
    one = Line2D([], [], color=INK, marker=".", linestyle="", alpha=0.5, label="one seed")
    add_legend(foot, [*marks, one])
    save(figure, path)


def _draw_panel(axes: Axes, results: Results, value: Any, title: str) -> None:
    """Means joined by a line for each rule, each with its setting beside it, and every seed as a dot."""
    for kind, (_, color, marker, beside) in LOOKS.items():
        chosen = [(name.split(" ")[-1], r) for name, r in results.items() if name.split(" ")[2] == kind]
        chosen.sort(key=lambda pair: fmean(pair[1]["evaluations"]))
        x = [fmean(r["evaluations"]) for _, r in chosen]
        y = [fmean(value(r)) for _, r in chosen]
        axes.plot(x, y, color=color, marker=marker, markersize=7, linewidth=1.2)
        for (setting, result), mean_x, mean_y in zip(chosen, x, y, strict=True):
            axes.plot(result["evaluations"], value(result), ".", color=color, alpha=0.45, markersize=4)
            place = ASIDE if any(mean_x / 1.12 < other < mean_x for other in x) else beside
            axes.annotate(setting, (mean_x, mean_y), place, textcoords="offset points", fontsize=8, color=color)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("evaluations per iteration, checks included")
    axes.set_title(title, fontsize=10)
