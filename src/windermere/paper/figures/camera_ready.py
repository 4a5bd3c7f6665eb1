"""Figures for print in the paper's layout: its text's width, small letters, fonts embedded, lines as vectors."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image, ImageDraw

from windermere.records.atomic import write_atomically
from windermere.report.palette import FAINT, GRID, INK
from windermere.report.style import add_legend, in_few_colours

WIDTH = 5.5
"""Inches: the text of the paper's class."""
DPI, THUMBNAIL_DPI, COLUMNS, GAP = 200, 45, 4, 14
"""Dots per inch of what is drawn as pixels inside a PDF, and of a contact sheet, with its columns and gaps (pixels)."""
PRINT: dict[str, Any] = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.titlepad": 3.0,
    "axes.linewidth": 0.6,
    "axes.labelpad": 2.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.minor.size": 1.2,
    "ytick.minor.size": 1.2,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "hatch.color": "white",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "legend.handlelength": 1.6,
    "pdf.fonttype": 42,
}
for_print = style.context(["default", PRINT])
"""Around every figure for print, and its saving."""


def print_figure(height: float, width: float = WIDTH) -> Figure:
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=2 / 72, w_pad=2 / 72))


def letter(panels: Iterable[Axes], titles: Iterable[str] = ()) -> None:
    """(a), (b), ... at the upper left corner of each, with a title where there is one."""
    for number, (axes, title) in enumerate(zip(panels, chain(titles, iter(str, None)), strict=False)):
        axes.set_title("")
        axes.set_title(f"({chr(97 + number)}) {title}".rstrip(), loc="left")


def thin(panels: Iterable[Axes], scale: float = 0.55) -> None:
    """Lines and marks that were made for the screen."""
    for axes in panels:
        for line in axes.lines:
            line.set_markersize(scale * float(line.get_markersize()))
            line.set_markeredgewidth(scale * float(line.get_markeredgewidth()))
            line.set_linewidth(scale * float(line.get_linewidth()))
        for patch in axes.patches:
            patch.set_linewidth(scale * float(patch.get_linewidth()))


def print_legend(part: SubFigure | Figure, handles: Sequence[Line2D | Patch]) -> None:
    """Below all panels of a part of a figure."""
    add_legend(part, handles, letters_per_inch=19.0)


def save_pdf(figure: Figure, path: Path) -> None:
    """The same drawing gives the same bytes: no date is in it."""
    file = BytesIO()
    figure.savefig(file, format="pdf", dpi=DPI, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    write_atomically(path, file.getvalue())


def save_contact_sheet(figures: Mapping[str, Figure], path: Path) -> None:
    """All figures small on one page, with their names."""
    small = {name: _thumbnail(figure) for name, figure in figures.items()}
    columns: list[list[str]] = [[] for _ in range(COLUMNS)]
    for name in small:  # each below the shortest column
        min(columns, key=lambda names: _height(small, names)).append(name)
    width = max(image.width for image in small.values()) + GAP
    sheet = Image.new("RGB", (COLUMNS * width + GAP, max(_height(small, names) for names in columns) + GAP), "white")
    for column, names in enumerate(columns):
        for number, name in enumerate(names):
            left, top = GAP + column * width, _height(small, names[:number]) + GAP
            ImageDraw.Draw(sheet).text((left, top), name, fill=INK)
            sheet.paste(small[name], (left, top + GAP))
    file = BytesIO()
    sheet.save(file, "PNG")
    write_atomically(path, in_few_colours(file.getvalue()))


def _height(small: Mapping[str, Image.Image], names: Sequence[str]) -> int:
    return sum(small[name].height + 2 * GAP for name in names)


def _thumbnail(figure: Figure) -> Image.Image:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=2 * THUMBNAIL_DPI)
    picture = Image.open(file).convert("RGB")
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.LANCZOS)
