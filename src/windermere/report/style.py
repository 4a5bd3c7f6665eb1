"""What all figures share: colours, the style around them, sizes, and how they are saved.

No pyplot: its global state would leak between figures, and into the notebook of whoever calls this.
"""

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from windermere.errors import UsageError
from windermere.records.atomic import write_atomically

Array = NDArray[Any]
LineStyle: TypeAlias = Literal["-", ":", "-."] | tuple[float, tuple[float, ...]]

DPI = 150
FORMATS: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}}
"""What a figure can be saved as, and what each says of itself: nothing that changes."""
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
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "h")
LINES: tuple[LineStyle, ...] = (
    "-", (0, (5, 1.5)), ":", "-.", (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (2, 3)), (0, (4, 4)), "-",
)  # fmt: skip
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "oo", "||", "++", "**")
"""The classes once more, for those who print in black and white: their points, lines and regions."""
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
            "hatch.color": "white",
            "hatch.linewidth": 1.2,
            "svg.hashsalt": "windermere",  # else the names inside an SVG are drawn at random
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


def figure_path(path: Path | str) -> Path:
    """Where a figure may be saved: as a PNG or an SVG."""
    place = Path(path)
    if place.suffix not in FORMATS:
        raise UsageError(f"a figure is saved as {' or '.join(FORMATS)}, and '{place.name}' ends in neither")
    return place


def save(figure: Figure, path: Path | str) -> None:
    """Saves a PNG or an SVG, by the path's suffix, in one step; the same drawing gives the same bytes."""
    place, image = figure_path(path), BytesIO()
    figure.savefig(image, format=place.suffix[1:], dpi=DPI, metadata=FORMATS[place.suffix])
    write_atomically(place, image.getvalue())


def wrapped(title: str, width: int = 46) -> str:
    """A title in lines that fit a panel, broken at its colon if anywhere."""
    if len(title) <= width:
        return title
    parts = title.replace(": ", ":\n", 1).splitlines()
    return "\n".join(textwrap.fill(part, width) for part in parts)
