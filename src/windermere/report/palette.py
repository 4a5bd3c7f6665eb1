"""Colours, markers and lines of all figures."""

from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

Array = NDArray[Any]
LineStyle: TypeAlias = Literal["-", ":", "-."] | tuple[float, tuple[float, ...]]

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
