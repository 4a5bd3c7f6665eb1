"""Between arrays and the rows of tables: trajectories as rows and back, rows with given values, figures of both kinds.

Shapes: S steps, N points in the plane.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windermere.records import Row

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Those rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def state_rows(states: Floats, labels: Labels, **shared: Any) -> list[Row]:
    """Trajectories [S + 1, N, 2] of points with labels [N], a row for each state."""
    return [
        {**shared, "point": point, "label": int(labels[point]), "step": step, "x": float(x), "y": float(y)}
        for point, path in enumerate(states.transpose(1, 0, 2))
        for step, (x, y) in enumerate(path)
    ]


def states_of(rows: Sequence[Row]) -> tuple[Floats, Labels]:
    """What `state_rows` was given."""
    points, steps = (1 + max(int(row[name]) for row in rows) for name in ("point", "step"))
    states, labels = np.full((steps, points, 2), np.nan), np.zeros(points, dtype=np.int64)
    for row in rows:
        states[row["step"], row["point"]] = row["x"], row["y"]
        labels[row["point"]] = row["label"]
    return states, labels


def draw_both(draw: Callable[[Path], object], folder: Path, name: str) -> list[Path]:
    """The same figure as a PNG and as an SVG."""
    paths = [folder / f"{name}{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        draw(path)
    return paths
