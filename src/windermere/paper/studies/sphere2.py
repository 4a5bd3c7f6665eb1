"""The data set Sphere2 in its plane (Appendix B): nothing is trained.

Shapes: N points in the plane.
"""

from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from windermere.paper.data import Split, spheres
from windermere.paper.figures import draw_classes
from windermere.paper.studies.rows import Floats, Labels, draw_both, where
from windermere.paper.studies.study import MAIN, Finding, Study, Tables
from windermere.paper.training import RunConfig
from windermere.records import Row


def compute(quick: bool) -> Tables:
    """The training set, and where both sets lie; it is quick in any case."""
    data = spheres(2, seed=RunConfig.data_seed)
    splits = {"training": data.train, "test": data.test}
    x, y = np.asarray(data.train.inputs, dtype=np.float64).T.tolist()
    labels = data.train.labels.tolist()
    points = [{"label": label, "x": a, "y": b} for label, a, b in zip(labels, x, y, strict=True)]
    return {MAIN: [row for name, split in splits.items() for row in _of(name, split)], "points": points}


def _of(name: str, split: Split) -> list[Row]:
    points = np.asarray(split.inputs, dtype=np.float64)
    return [{"split": name, **row} for row in shells(points, np.asarray(split.labels))]


def shells(points: Floats, labels: Labels) -> list[Row]:
    """From the centre of the points [N, 2] outwards, a row for as long as their labels [N] stay the same."""
    outwards = sorted(zip(np.linalg.norm(points, axis=1).tolist(), labels.tolist(), strict=True))
    found = [(label, [radius for radius, _ in own]) for label, own in groupby(outwards, key=lambda point: point[1])]
    return [{"label": label, "points": len(r), "inner": r[0], "outer": r[-1]} for label, r in found]


def draw(tables: Tables, folder: Path) -> list[Path]:
    rows = tables["points"]
    points, labels = np.array([[row["x"], row["y"]] for row in rows]), np.array([row["label"] for row in rows])
    return draw_both(
        partial(draw_classes, points, labels, f"Sphere2: {len(rows)} training points"), folder, SPHERE2.name
    )


def findings(tables: Tables) -> list[Finding]:
    found = {name: where(tables[MAIN], split=name) for name in ("training", "test")}
    classes = [[row["label"] for row in rows] for rows in found.values()]
    return [
        Finding(
            claim="Sphere2 is three concentric spheres, the inner and the outer one of one class.",
            ours="; ".join(f"{name} set: {', '.join(map(_told, rows))}" for name, rows in found.items()),
            agrees=all(len(labels) == 3 and labels[0] == labels[2] for labels in classes),
        )
    ]


def _told(row: Row) -> str:
    return f"{row['points']} points of class {row['label']} at radii {row['inner']:.3f} to {row['outer']:.3f}"


SPHERE2 = Study(
    name="sphere2-data",
    paper="Appendix B",
    what="The data set Sphere2: an inner and an outer ring of one class, and between them one of the other",
    compute=compute,
    draw=draw,
    findings=findings,
)
