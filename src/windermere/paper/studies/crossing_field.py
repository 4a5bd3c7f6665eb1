"""Appendix A: a field whose Euler polygons cross at one step, and neither at larger nor at smaller ones.

Shapes: S steps, N points in the plane.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.crossings import count_crossings
from windermere.paper.figures.toy_figures import Quiver, Walks, draw_crossing_field
from windermere.paper.studies.fan import walk
from windermere.paper.studies.rows import (
    MAIN,
    Floats,
    Labels,
    StateRow,
    Table,
    Tables,
    draw_png,
    state_rows,
    states_of,
)
from windermere.paper.studies.study import Finding, Share, Study
from windermere.solvers import FixedStep

FROM_0, FROM_15, FROM_14 = 0.0, 1.5, 1.4
"""x(0) of the first ten points, and of the ten more: 1.5 in the caption, 1.4 in the text."""
END = 3.0
DRAWN = (0, 1, 5)
"""h = 2^-k of the three panels."""
HALVINGS = 8


@dataclass(frozen=True, kw_only=True)
class CrossingsRow:
    step: float
    second: float | None
    """x(0) of the ten more points; None without them."""
    crossings: int
    between_sets: int


@dataclass(frozen=True, kw_only=True)
class HalvingsRow:
    halvings: int


@dataclass(frozen=True, kw_only=True)
class PolygonRow(StateRow, HalvingsRow):
    """On the way with h = 2^-halvings; a point's label is its set."""


@dataclass(frozen=True, kw_only=True)
class ArrowRow:
    x: float
    y: float
    dx: float
    dy: float


CROSSINGS, POLYGONS = Table(MAIN, CrossingsRow), Table("trajectories", PolygonRow)
ARROWS = Table("field", ArrowRow)


def crossing_field(t: Tensor, z: Tensor) -> Tensor:
    """Appendix A's: its direction changes only where 1 < x <= 2."""
    x, y = z.unbind(-1)
    slow = torch.where(x <= 1.25, 2 * (x - 1), torch.where(x <= 1.75, 0.5, 0.5 - 2 * (x - 1.75)))
    slow = torch.where((x > 1) & (x <= 2), slow, 0.0)
    return torch.stack([1 - slow, slow / y], dim=-1)


def ten_points(x: float) -> Floats:
    return np.stack([np.full(10, x), np.linspace(0.1, 1, 10)], axis=1)


def compute_crossings(quick: bool, share: Share = lambda done: None) -> Tables:
    """Crossings of the first ten points, and with ten more, at h = 1, 1/2, ... 2^-8; it is quick in any case."""
    rows, walks = list[CrossingsRow](), list[PolygonRow]()
    for k in range(HALVINGS + 1):
        for second in (None, FROM_15, FROM_14):
            states, sets = _walk_sets(second, 2.0**-k)
            found = count_crossings(states, sets)
            rows.append(
                CrossingsRow(step=2.0**-k, second=second, crossings=found.total, between_sets=found.between_classes)
            )
            if k in DRAWN and second == FROM_15:
                walks += state_rows(PolygonRow, states, sets, halvings=k)
        share((k + 1) / (HALVINGS + 1))
    return Tables({CROSSINGS: rows, POLYGONS: walks, ARROWS: _arrows()})


def _walk_sets(second: float | None, step: float) -> tuple[Floats, Labels]:
    """States [S + 1, N, 2] of the first ten points, and ten more that start at x = second; which set each is of."""
    starts = [ten_points(x) for x in (FROM_0, second) if x is not None]
    states = walk(crossing_field, np.concatenate(starts), FixedStep("euler", step=step), END)
    return states, np.repeat(np.arange(len(starts)), 10)


def _arrows() -> list[ArrowRow]:
    x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 4, 29), np.linspace(0.1, 1.6, 13)))
    z = torch.as_tensor(np.stack([x, y], axis=1))
    arrows = torch.cat([z, crossing_field(torch.zeros(()), z)], dim=1)
    return [ArrowRow(x=x, y=y, dx=dx, dy=dy) for x, y, dx, dy in arrows.tolist()]


def draw_crossings(tables: Tables, folder: Path) -> list[Path]:
    return draw_png(partial(draw_crossing_field, *crossing_panels(tables)), folder, "crossing-field")


def crossing_panels(tables: Tables) -> tuple[Quiver, list[Walks], list[str]]:
    """The field, what Euler's method makes of it, and the names of both sets of points."""
    panels = []
    for letter, k in zip("bcd", DRAWN, strict=True):
        states, sets = states_of([row for row in tables[POLYGONS] if row.halvings == k])
        first, both = (_count(tables, k, second) for second in (None, FROM_15))
        title = f"({letter}) h = {_fraction(k)}: {first} crossings, {both} with both sets"
        panels.append(Walks(title=title, states=states, sets=sets))
    names = [f"x(0) = {x:g}" for x in (FROM_0, FROM_15)]
    arrows = tables[ARROWS]
    quiver = Quiver(places=np.array([(a.x, a.y) for a in arrows]), rates=np.array([(a.dx, a.dy) for a in arrows]))
    return quiver, panels, names


def _fraction(k: int) -> str:
    return "1" if k == 0 else f"1/{2**k}"


def _count(tables: Tables, k: int, second: float | None) -> int:
    (row,) = (row for row in tables[CROSSINGS] if (row.step, row.second) == (2.0**-k, second))
    return row.crossings


def crossing_findings(tables: Tables) -> list[Finding]:
    count = partial(_count, tables)
    first, both, text = ([count(k, second) for k in DRAWN] for second in (None, FROM_15, FROM_14))
    free = [_free_from(tables, second) for second in (None, FROM_15, FROM_14)]
    return [
        Finding(
            claim="From x(0) = 0 nothing crosses at h = 1, trajectories cross at 1/2, and nothing crosses at 2^-5: "
            "no crossings at one step say nothing of smaller ones.",
            ours=f"{_listed(first)} crossings at h = 1, 1/2 and 1/32",
            agrees=first[0] == first[2] == 0 < first[1],
        ),
        Finding(
            claim="With ten more points at x(0) = 1.5 (the caption's; the text says 1.4), some cross at h = 1 too.",
            ours=f"{_listed(both)} crossings at h = 1, 1/2 and 1/32 with x(0) = 1.5, {_listed(text)} with 1.4",
            agrees=both[0] > 0 and text[0] > 0,
        ),
        Finding(
            claim="There is a step below which nothing crosses.",
            ours=f"none from h = {free[0]} on from x(0) = 0, from {free[1]} on with x(0) = 1.5 as well, and from "
            f"{free[2]} on with 1.4 instead, down to 1/{2**HALVINGS}",
            agrees=None not in free,
        ),
    ]


def _listed(counts: Iterable[int]) -> str:
    *most, last = map(str, counts)
    return f"{', '.join(most)} and {last}"


def _free_from(tables: Tables, second: float | None) -> str | None:
    """The coarsest step from which on nothing crosses."""
    crossing = [k for k in range(HALVINGS + 1) if _count(tables, k, second) > 0]
    first = max(crossing, default=-1) + 1
    return _fraction(first) if first <= HALVINGS else None


CROSSING_FIELD = Study(
    name="crossing-field",
    paper="Appendix A",
    what="A field whose Euler polygons cross at one step, and neither at a larger nor at a smaller one",
    tables=(CROSSINGS, POLYGONS, ARROWS),
    compute=compute_crossings,
    draw=draw_crossings,
    findings=crossing_findings,
)
