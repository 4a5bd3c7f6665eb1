"""Digits from the same noise, before and after a sampler was tuned, and how far they are from real ones.

Shapes: S seeds, n digits of side by side pixels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from windermere.report.palette import CLASSES, FAINT, LineStyle
from windermere.report.style import add_legend, house_style, new_figure, save

LOOKS: Mapping[str, tuple[str, str, LineStyle]] = {
    "own solver before": (CLASSES[0], "o", ":"),
    "own solver after": (CLASSES[0], "o", "-"),
    "flow before": (FAINT, "s", ":"),
    "flow after": (CLASSES[1], "^", "-"),
    "flow, if flow matching goes on": (CLASSES[2], "D", ":"),
}
"""Colour, marker and line of each thing that is measured; what was before tuning has hollow markers."""


@dataclass(frozen=True, kw_only=True)
class DigitsPanel:
    title: str
    lines: Mapping[str, NDArray[np.float64]]
    """[n, side, side], from 0 to 1, by what made them."""


@dataclass(frozen=True, kw_only=True)
class DistancesPanel:
    """One yardstick."""

    title: str
    score: str
    lines: Mapping[str, Mapping[int, Sequence[float]]]
    """By name of `LOOKS`, and by the number of Euler steps: distances, or what a reward lacks [S]."""


@house_style
def draw_distances(panels: Sequence[DistancesPanel], path: Path) -> None:
    """Lines through the means over seeds, and a dot for each seed."""
    canvas = new_figure(3.5 * len(panels), 3.9, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    row = body.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, panel, letter in zip(row, panels, ascii_lowercase, strict=False):
        _draw_distances(axes, panel)
        axes.set_title(f"({letter}) {panel.title}", fontsize=11)
    body.axes[0].set_ylabel(panels[0].score)
    shown = [name for name in LOOKS if any(panel.lines.get(name) for panel in panels)]
    add_legend(body, [_sign(name) for name in shown])
    save(canvas, path)


def _draw_distances(axes: Axes, panel: DistancesPanel) -> None:
    for name, line in panel.lines.items():
        colour, marker, style = LOOKS[name]
        axes.plot(
            list(line), [float(np.mean(each)) for each in line.values()], linestyle=style, color=colour, linewidth=1.2
        )
        spread = [(steps, value) for steps, each in line.items() for value in each]
        face = "white" if "before" in name else colour
        x, y = zip(*spread, strict=True) if spread else ((), ())
        axes.scatter(x, y, s=14, marker=marker, facecolors=face, edgecolors=colour, linewidths=0.8, zorder=4)
    axes.set_xlabel("Euler steps")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({steps for line in panel.lines.values() for steps in line}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _sign(name: str) -> Line2D:
    colour, marker, style = LOOKS[name]
    face = "white" if "before" in name else colour
    return Line2D([], [], color=colour, marker=marker, linestyle=style, markerfacecolor=face, label=name)


@house_style
def draw_digits(panels: Sequence[DigitsPanel], path: Path) -> None:
    """One panel below the other; a column is one draw of noise."""
    canvas = new_figure(6.8, 2.0 * len(panels), padding=5 / 72)
    column = canvas.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, panel, letter in zip(column, panels, ascii_lowercase, strict=False):
        side = next(iter(panel.lines.values())).shape[1]
        picture = np.concatenate([np.concatenate(list(line), axis=1) for line in panel.lines.values()])
        axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_yticks([side * (k + 0.5) - 0.5 for k in range(len(panel.lines))], list(panel.lines), fontsize=9)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"({letter}) {panel.title}", fontsize=10)
    save(canvas, path)
