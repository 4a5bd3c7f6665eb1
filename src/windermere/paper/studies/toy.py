"""Two fields on paper, nothing trained: Lady Windermere's fan (Figure 3), and crossings that come and go (Appendix A).

Shapes: S steps, N points in the plane.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.evidence.crossings import count_crossings
from windermere.errors import NonFiniteError
from windermere.paper.figures import FanPanel, Ladder, Quiver, Walks, draw_crossing_field, draw_fan
from windermere.paper.studies.rows import draw_both, state_rows, states_of, where
from windermere.paper.studies.separability import linearly_separable, widest_line
from windermere.paper.studies.study import MAIN, Finding, Study, Tables
from windermere.records import Row
from windermere.solvers import Adaptive, FixedStep, Solver, solve

Floats = NDArray[np.float64]
Field = Callable[[Tensor, Tensor], Tensor]


def walk(field: Field, start: Floats, solver: Solver, end: float) -> Floats:
    """Every state [S + 1, N, 2] from t = 0 to the end, in float64."""
    solution = solve(field, torch.as_tensor(start, dtype=torch.float64), solver, (0.0, end), record=True)
    assert solution.trajectory is not None  # asked for
    return np.asarray(solution.trajectory.states, dtype=np.float64)


# Figure 3: the fan.

ALPHA, BETA, GAMMA, DELTA = 1.30, 0.30, 4.3, 1.61
"""The paper names none: of those that were tried, these do what it shows."""
CORNERS = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
XOR = np.array([0, 0, 1, 1])
SHOWN = (-2.5, -3.5)
"""Exponents of the steps of Figure 3 (a) and (b)."""
COARSEST, FINEST = -1.5, -4.5
FLOW = Adaptive("dopri54", tolerance=1e-10)
DRAWN_STEPS = 800
"""About as many of a walk's steps are kept for the figure."""


def fan(t: Tensor, z: Tensor) -> Tensor:
    """Equation 4: ellipses that grow, and turn ever faster."""
    x, y = z.unbind(-1)
    return torch.stack([ALPHA * x + y, -GAMMA * z.norm(dim=-1) ** DELTA * x + BETA * y], dim=-1)


def exponents(quick: bool) -> list[float]:
    """The exponents of the step sizes: a quarter of a decade apart if quick, else an eighth."""
    per_decade = 4 if quick else 8
    return [COARSEST - i / per_decade for i in range(round((COARSEST - FINEST) * per_decade) + 1)]


def compute_fan(quick: bool) -> Tables:
    """Where the four points end with each step size, and for two of the step sizes also the way there."""
    rows = [_after_euler(exponent) for exponent in exponents(quick)]
    shown = {exponent: walk(fan, CORNERS, _euler(exponent), 1.0) for exponent in SHOWN}
    flow = {"method": FLOW.method, "tolerance": FLOW.precision, **_seen(walk(fan, CORNERS, FLOW, 1.0))}
    lines = [
        {"exponent": exponent, **dict(zip("abc", widest_line(states[-1], XOR), strict=True))}
        for exponent, states in shown.items()
        if linearly_separable(states[-1], XOR)
    ]
    thinned = (state_rows(_thinned(states), XOR, exponent=exponent) for exponent, states in shown.items())
    return {MAIN: [*rows, flow], "trajectories": [row for rows in thinned for row in rows], "lines": lines}


def _euler(exponent: float) -> FixedStep:
    return FixedStep("euler", step=10**exponent)


def _after_euler(exponent: float) -> Row:
    row: Row = {"method": "euler", "exponent": exponent, "step": 10**exponent}
    try:
        return row | _seen(walk(fan, CORNERS, _euler(exponent), 1.0))
    except NonFiniteError:
        return row | {"outcome": "blows up"}


def _seen(states: Floats) -> Row:
    separable, crossings = linearly_separable(states[-1], XOR), count_crossings(states, XOR)
    outcome = "separable" if separable else "not separable"
    return {"outcome": outcome, "steps": len(states) - 1, "crossings": crossings.total}


def _thinned(states: Floats) -> Floats:
    """Every so many steps, and the last."""
    every = max(1, round((len(states) - 1) / DRAWN_STEPS))
    return np.concatenate([states[:-1:every], states[-1:]])


def draw_fan_study(tables: Tables, folder: Path) -> list[Path]:
    lines = {row["exponent"]: (row["a"], row["b"], row["c"]) for row in tables["lines"]}
    panels = []
    for letter, exponent in zip("ab", SHOWN, strict=True):
        states, labels = states_of(where(tables["trajectories"], exponent=exponent))
        (row,) = where(tables[MAIN], exponent=exponent)
        panel = FanPanel(
            title=f"({letter}) Euler, h = {_power(exponent)}",
            outcome=row["outcome"],
            states=states,
            labels=labels,
            line=lines.get(exponent),
        )
        panels.append(panel)
    euler, (flow,) = (where(tables[MAIN], method=method) for method in ("euler", FLOW.method))
    ladder = Ladder(
        steps=np.array([row["step"] for row in euler]),
        outcomes=[row["outcome"] for row in euler],
        flow=flow["outcome"],
        marked={letter: 10**exponent for letter, exponent in zip("ab", SHOWN, strict=True)},
    )
    return draw_both(partial(draw_fan, panels, ladder), folder, "fan")


def _power(exponent: float) -> str:
    return rf"$10^{{{exponent:g}}}$"


def fan_findings(tables: Tables) -> list[Finding]:
    euler = where(tables[MAIN], method="euler")
    coarse, fine = (where(euler, exponent=exponent)[0] for exponent in SHOWN)
    (flow,) = where(tables[MAIN], method=FLOW.method)
    solved = [row for row in euler if row["outcome"] != "blows up"]
    return [
        Finding(
            claim="At h = 10^-2.5 Euler's method makes the XOR points linearly separable, at 10^-3.5 it does not "
            "(the paper does not say with which parameters: ours were found by a search).",
            ours=f"{coarse['outcome']} at 10^-2.5, {fine['outcome']} at 10^-3.5, decided in exact arithmetic",
            agrees=(coarse["outcome"], fine["outcome"]) == ("separable", "not separable"),
        ),
        Finding(
            claim="At neither step do trajectories cross.",
            ours=f"{coarse['crossings']} and {fine['crossings']} crossings at these two; at most "
            f"{max(row['crossings'] for row in solved)} at any of {len(solved)} steps that can be solved",
            agrees=coarse["crossings"] == fine["crossings"] == 0,
        ),
        Finding(
            claim="What the error made separable is lost with smaller steps, for good.",
            ours=f"{_ranges(euler)}; the flow itself ({FLOW.method}, tolerance {FLOW.precision:g}): {flow['outcome']}",
            agrees=euler[-1]["outcome"] == flow["outcome"] == "not separable" and _changes(solved) == 1,
        ),
    ]


def _ranges(rows: Sequence[Row]) -> str:
    """Runs of equal outcomes, from the coarsest step to the finest."""
    runs: list[list[Row]] = []
    for row in rows:
        if not runs or runs[-1][0]["outcome"] != row["outcome"]:
            runs.append([])
        runs[-1].append(row)
    return ", ".join(f"{run[0]['outcome']} from {_named(run[0])} to {_named(run[-1])}" for run in runs)


def _named(row: Row) -> str:
    return f"10^{row['exponent']:g}"


def _changes(rows: Sequence[Row]) -> int:
    return sum(a["outcome"] != b["outcome"] for a, b in pairwise(rows))


# Appendix A: a field whose Euler polygons cross at one step, and neither at larger nor at smaller ones.

FROM_0, FROM_15, FROM_14 = 0.0, 1.5, 1.4
"""x(0) of the first ten points, and of the ten more: 1.5 in the caption, 1.4 in the text."""
END = 3.0
DRAWN = (0, 1, 5)
"""h = 2^-k of the three panels."""
HALVINGS = 8
ARROW = ("x", "y", "dx", "dy")


def crossing_field(t: Tensor, z: Tensor) -> Tensor:
    """Appendix A's: its direction changes only where 1 < x <= 2."""
    x, y = z.unbind(-1)
    slow = torch.where(x <= 1.25, 2 * (x - 1), torch.where(x <= 1.75, 0.5, 0.5 - 2 * (x - 1.75)))
    slow = torch.where((x > 1) & (x <= 2), slow, 0.0)
    return torch.stack([1 - slow, slow / y], dim=-1)


def ten_points(x: float) -> Floats:
    return np.stack([np.full(10, x), np.linspace(0.1, 1, 10)], axis=1)


def compute_crossings(quick: bool) -> Tables:
    """Crossings of the first ten points, and with ten more, at h = 1, 1/2, ... 2^-8; it is quick in any case."""
    rows, walks = list[Row](), list[Row]()
    for k in range(HALVINGS + 1):
        step = 2.0**-k
        for second in (None, FROM_15, FROM_14):
            states, sets = _walk_sets(second, step)
            rows.append({"step": step, "second": second, **_counted(states, sets)})
            if k in DRAWN and second == FROM_15:
                walks += state_rows(states, sets, halvings=k)
    return {MAIN: rows, "trajectories": walks, "field": _quiver_rows()}


def _walk_sets(second: float | None, step: float) -> tuple[Floats, NDArray[np.int64]]:
    """States [S + 1, N, 2] of the first ten points, and ten more that start at x = second; which set each is of."""
    starts = [ten_points(x) for x in (FROM_0, second) if x is not None]
    states = walk(crossing_field, np.concatenate(starts), FixedStep("euler", step=step), END)
    return states, np.repeat(np.arange(len(starts)), 10)


def _counted(states: Floats, sets: NDArray[np.int64]) -> Row:
    found = count_crossings(states, sets)
    return {"crossings": found.total, "between_sets": found.between_classes}


def _quiver_rows() -> list[Row]:
    x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 4, 29), np.linspace(0.1, 1.6, 13)))
    z = torch.as_tensor(np.stack([x, y], axis=1))
    arrows = torch.cat([z, crossing_field(torch.zeros(()), z)], dim=1)
    return [dict(zip(ARROW, arrow, strict=True)) for arrow in arrows.tolist()]


def draw_crossings(tables: Tables, folder: Path) -> list[Path]:
    arrows = np.array([[row[name] for name in ARROW] for row in tables["field"]])
    panels = []
    for letter, k in zip("bcd", DRAWN, strict=True):
        states, sets = states_of(where(tables["trajectories"], halvings=k))
        first, both = (_count(tables, k, second) for second in (None, FROM_15))
        title = f"({letter}) h = {_fraction(k)}: {first} crossings, {both} with both sets"
        panels.append(Walks(title=title, states=states, sets=sets))
    names = [f"x(0) = {x:g}" for x in (FROM_0, FROM_15)]
    quiver = Quiver(places=arrows[:, :2], rates=arrows[:, 2:])
    return draw_both(partial(draw_crossing_field, quiver, panels, names), folder, "crossing-field")


def _fraction(k: int) -> str:
    return "1" if k == 0 else f"1/{2**k}"


def _count(tables: Tables, k: int, second: float | None) -> int:
    (row,) = where(tables[MAIN], step=2.0**-k, second=second)
    return int(row["crossings"])


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


FAN = Study(
    name="fan",
    paper="Figure 3",
    what="Lady Windermere's fan: XOR points become linearly separable by Euler's error alone, without any crossing",
    compute=compute_fan,
    draw=draw_fan_study,
    findings=fan_findings,
)
CROSSING_FIELD = Study(
    name="crossing-field",
    paper="Appendix A",
    what="A field whose Euler polygons cross at one step, and neither at a larger nor at a smaller one",
    compute=compute_crossings,
    draw=draw_crossings,
    findings=crossing_findings,
)
