"""What all figures share: colours, the style around them, sizes, and how they are saved.

No pyplot: its global state would leak between figures, and into the notebook of whoever calls this.
"""

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from windermere.records.atomic import write_atomically

Array = NDArray[Any]

DPI = 150
INK = "#22272e"
FAINT = "#8a94a0"
GRID = "#dfe3e8"
CLASSES = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255", "#999933", "#7f7f7f",
)  # fmt: skip
"""Okabe and Ito's colours, which people of any colour vision tell apart, two of Paul Tol's, and a grey."""
REGIONS = (
    "#e3eff7", "#fbeade", "#dff3ee", "#f8edf3", "#fcf2df", "#e9f5fc", "#dcdcdc", "#eedfe7", "#f1f1e3", "#efefef",
)  # fmt: skip
"""The same, as a background."""
MEMBERS = CLASSES[:7]
"""For the seeds of an ensemble."""

house_style = style.context(
    [
        "default",
        {
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": FAINT,
            "axes.titlesize": 12,
            "axes.titlepad": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": GRID,
            "legend.edgecolor": GRID,
            "svg.hashsalt": "windermere",
        },
    ]
)
"""Around every figure, and gone after it: no figure depends on the user's settings, or changes them."""


def new_figure(width: float, height: float, padding: float = 3 / 72) -> Figure:
    """A white figure of a size in inches, laid out so that no two texts overlap, with padding between its parts."""
    layout = ConstrainedLayoutEngine(h_pad=padding, w_pad=padding)
    return Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")


def add_legend(row: SubFigure, handles: Sequence[Line2D | Patch]) -> None:
    """Below all panels of a row, in as many columns as fit its width."""
    letters = [len(str(handle.get_label())) + 7 for handle in handles]  # and the sign before it
    width = 12.0 * row.bbox.width / row.dpi
    fitting = (n for n in range(len(handles), 1, -1) if sum(map(max, np.array_split(letters, n))) <= width)
    row.legend(handles=handles, loc="outside lower center", ncols=next(fitting, 1), frameon=False)


def save(figure: Figure, path: Path) -> None:
    """Saves an SVG where the path ends so, else a PNG, in one step; the same drawing gives the same bytes."""
    drawn, as_svg = BytesIO(), path.suffix == ".svg"
    figure.savefig(drawn, format="svg" if as_svg else "png", dpi=DPI, metadata={"Date": None} if as_svg else None)
    write_atomically(path, drawn.getvalue())


def wrapped(title: str, width: int = 46) -> str:
    """A title in lines that fit a panel, broken at its colon if anywhere."""
    if len(title) <= width:
        return title
    parts = title.replace(": ", ":\n", 1).splitlines()
    return "\n".join(textwrap.fill(part, width) for part in parts)
