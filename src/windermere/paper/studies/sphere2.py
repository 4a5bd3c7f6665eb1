"""The data set Sphere2 in its plane (Appendix B): nothing is trained.

Shapes: N points in the plane.
"""

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from windermere.paper.data import spheres
from windermere.paper.figures.toy_figures import draw_classes
from windermere.paper.studies.rows import MAIN, Floats, Labels, Table, Tables, draw_png
from windermere.paper.studies.study import Finding, Share, Study
from windermere.paper.training import RunConfig


@dataclass(frozen=True, kw_only=True)
class ShellRow:
    """Points of one class between two radii."""

    split: str
    label: int
    points: int
    inner: float
    outer: float

    def __str__(self) -> str:
        return f"{self.points} points of class {self.label} at radii {self.inner:.3f} to {self.outer:.3f}"


@dataclass(frozen=True, kw_only=True)
class PointRow:
    label: int
    x: float
    y: float


SHELLS, POINTS = Table(MAIN, ShellRow), Table("points", PointRow)


def compute(quick: bool, share: Share = lambda done: None) -> Tables:
    """The training set, and where both sets lie; it is quick in any case."""
    data = spheres(2, seed=RunConfig.data_seed)
    rows = [
        shell
        for name, split in (("training", data.train), ("test", data.test))
        for shell in shells(name, np.asarray(split.inputs, dtype=np.float64), np.asarray(split.labels))
    ]
    places = zip(data.train.inputs.tolist(), data.train.labels.tolist(), strict=True)
    return Tables({SHELLS: rows, POINTS: [PointRow(label=label, x=x, y=y) for (x, y), label in places]})


def shells(split: str, points: Floats, labels: Labels) -> list[ShellRow]:
    """From the centre of the points [N, 2] outwards, a row for as long as their labels [N] stay the same."""
    outwards = sorted(zip(np.linalg.norm(points, axis=1).tolist(), labels.tolist(), strict=True))
    found = [(label, [radius for radius, _ in own]) for label, own in groupby(outwards, key=lambda point: point[1])]
    return [ShellRow(split=split, label=label, points=len(r), inner=r[0], outer=r[-1]) for label, r in found]


def draw(tables: Tables, folder: Path) -> list[Path]:
    points, labels = points_and_labels(tables)
    title = f"Sphere2: {len(points)} training points"
    return draw_png(partial(draw_classes, points, labels, title), folder, SPHERE2.name)


def points_and_labels(tables: Tables) -> tuple[Floats, Labels]:
    rows = tables[POINTS]
    return np.array([(row.x, row.y) for row in rows]), np.array([row.label for row in rows])


def findings(tables: Tables) -> list[Finding]:
    found = {split: [row for row in tables[SHELLS] if row.split == split] for split in ("training", "test")}
    return [
        Finding(
            claim="Sphere2 is three concentric spheres, the inner and the outer one of one class.",
            ours="; ".join(f"{split} set: {', '.join(map(str, rows))}" for split, rows in found.items()),
            agrees=all(len(rows) == 3 and rows[0].label == rows[2].label for rows in found.values()),
        )
    ]


SPHERE2 = Study(
    name="sphere2-data",
    paper="Appendix B",
    what="The data set Sphere2: an inner and an outer ring of one class, and between them one of the other",
    tables=(SHELLS, POINTS),
    compute=compute,
    draw=draw,
    findings=findings,
)
