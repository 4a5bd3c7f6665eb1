"""What all figures share: the style around them, sizes, and how they are saved.

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
from PIL import Image

from windermere.errors import UsageError
from windermere.records.atomic import write_atomically
from windermere.report.palette import FAINT, GRID, INK

DPI, LARGE = 150, 150_000
COLOURS = (256, 128)
"""How many a PNG has, whose letters and lines have soft edges; the fewer ones where it would be large (bytes)."""
FORMATS: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}}
"""What a figure can be saved as, and what each says of itself: nothing that changes."""
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


def add_legend(row: SubFigure | Figure, handles: Sequence[Line2D | Patch], letters_per_inch: float = 12.0) -> None:
    """Below all panels of a row, in as many columns as fit its width."""
    letters = [len(str(handle.get_label())) + 7 for handle in handles]  # and the sign before it
    width = letters_per_inch * row.bbox.width / row.figure.dpi
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
    layout = figure.get_layout_engine()
    if layout and any(axes.get_aspect() != "auto" for axes in figure.axes):
        layout.execute(figure)  # and again below: panels of equal axes grow, and their titles are where they were
    figure.savefig(image, format=place.suffix[1:], dpi=DPI, metadata=FORMATS[place.suffix])
    write_atomically(place, in_few_colours(image.getvalue()) if place.suffix == ".png" else image.getvalue())


def in_few_colours(png: bytes) -> bytes:
    """The same picture with a palette: about a quarter of the bytes, and no colour is far from what it was."""
    picture, small = Image.open(BytesIO(png)).convert("RGB"), b""
    for colours in COLOURS:
        fewer = picture.quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
        fewer.save(file := BytesIO(), "PNG", optimize=True)
        if len(small := file.getvalue()) < LARGE:
            break
    return small


def wrapped(title: str, width: int = 46) -> str:
    """A title in lines that fit a panel, broken at its colon if anywhere."""
    if len(title) <= width:
        return title
    parts = title.replace(": ", ":\n", 1).splitlines()
    return "\n".join(textwrap.fill(part, width) for part in parts)
