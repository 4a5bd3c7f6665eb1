"""Lady Windermere's fan (Figure 3), a field on paper: nothing is trained.

Shapes: S steps, N points in the plane.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.crossings import count_crossings
from windermere.errors import NonFiniteError
from windermere.paper.figures.toy_figures import FanPanel, Ladder, draw_fan
from windermere.paper.studies.rows import MAIN, Floats, StateRow, Table, Tables, draw_png, state_rows, states_of
from windermere.paper.studies.separability import linearly_separable, widest_line
from windermere.paper.studies.study import Finding, Share, Study
from windermere.solvers import Adaptive, FixedStep, Solver, solve

Field = Callable[[Tensor, Tensor], Tensor]


def walk(field: Field, start: Floats, solver: Solver, end: float) -> Floats:
    """Every state [S + 1, N, 2] from t = 0 to the end, in float64."""
    solution = solve(field, torch.as_tensor(start, dtype=torch.float64), solver, (0.0, end), record=True)
    assert solution.trajectory is not None  # asked for
    return np.asarray(solution.trajectory.states, dtype=np.float64)


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


@dataclass(frozen=True, kw_only=True)
class FanRow:
    """What became of the four points."""

    method: str
    exponent: float | None = None
    """The step is ten to the power of this."""
    step: float | None = None
    outcome: str
    steps: int | None = None
    crossings: int | None = None
    tolerance: float | None = None


@dataclass(frozen=True, kw_only=True)
class ExponentRow:
    exponent: float


@dataclass(frozen=True, kw_only=True)
class FanStateRow(StateRow, ExponentRow):
    """On the way with a step that is shown."""


@dataclass(frozen=True, kw_only=True)
class LineRow(ExponentRow):
    """The line a x + b y = c that separates the points' ends."""

    a: float
    b: float
    c: float


FAN_TABLE, FAN_STATES = Table(MAIN, FanRow), Table("trajectories", FanStateRow)
FAN_LINES = Table("lines", LineRow)


def fan(t: Tensor, z: Tensor) -> Tensor:
    """Equation 4: ellipses that grow, and turn ever faster."""
    x, y = z.unbind(-1)
    return torch.stack([ALPHA * x + y, -GAMMA * z.norm(dim=-1) ** DELTA * x + BETA * y], dim=-1)


def exponents(quick: bool) -> list[float]:
    """The exponents of the step sizes: a quarter of a decade apart if quick, else an eighth."""
    per_decade = 4 if quick else 8
    return [COARSEST - i / per_decade for i in range(round((COARSEST - FINEST) * per_decade) + 1)]


def compute_fan(quick: bool, share: Share = lambda done: None) -> Tables:
    """Where the four points end with each step size, and for two of the step sizes also the way there."""
    shown = {exponent: walk(fan, CORNERS, _euler(exponent), 1.0) for exponent in SHOWN}
    flow = _fan_row(walk(fan, CORNERS, FLOW, 1.0), method=FLOW.method, tolerance=FLOW.precision)
    ways = [state_rows(FanStateRow, _thinned(states), XOR, exponent=exponent) for exponent, states in shown.items()]
    lines = [
        LineRow(exponent=exponent, **dict(zip("abc", widest_line(states[-1], XOR), strict=True)))
        for exponent, states in shown.items()
        if linearly_separable(states[-1], XOR)
    ]
    rows = [*_after_each(exponents(quick), share), flow]
    return Tables({FAN_TABLE: rows, FAN_STATES: [row for way in ways for row in way], FAN_LINES: lines})


def _euler(exponent: float) -> FixedStep:
    return FixedStep("euler", step=10**exponent)


def _after_each(exponents: Sequence[float], share: Share) -> Iterator[FanRow]:
    """A row for each step size. Their cost is about the number of steps."""
    steps = [10**-exponent for exponent in exponents]
    for i, exponent in enumerate(exponents):
        yield _after_euler(exponent)
        share(sum(steps[: i + 1]) / sum(steps))


def _after_euler(exponent: float) -> FanRow:
    try:
        states = walk(fan, CORNERS, _euler(exponent), 1.0)
    except NonFiniteError:
        return FanRow(method="euler", exponent=exponent, step=10**exponent, outcome="blows up")
    return _fan_row(states, method="euler", exponent=exponent, step=10**exponent)


def _fan_row(states: Floats, **about: Any) -> FanRow:
    outcome = "separable" if linearly_separable(states[-1], XOR) else "not separable"
    return FanRow(outcome=outcome, steps=len(states) - 1, crossings=count_crossings(states, XOR).total, **about)


def _thinned(states: Floats) -> Floats:
    """Every so many steps, and the last."""
    every = max(1, round((len(states) - 1) / DRAWN_STEPS))
    return np.concatenate([states[:-1:every], states[-1:]])


def draw_fan_study(tables: Tables, folder: Path) -> list[Path]:
    return draw_png(partial(draw_fan, *fan_panels(tables)), folder, "fan")


def fan_panels(tables: Tables) -> tuple[list[FanPanel], Ladder]:
    lines = {row.exponent: (row.a, row.b, row.c) for row in tables[FAN_LINES]}
    outcomes = {row.exponent: row.outcome for row in tables[FAN_TABLE]}
    panels = []
    for letter, exponent in zip("ab", SHOWN, strict=True):
        states, labels = states_of([row for row in tables[FAN_STATES] if row.exponent == exponent])
        panel = FanPanel(
            title=f"({letter}) Euler, h = {_power(exponent)}",
            outcome=outcomes[exponent],
            states=states,
            labels=labels,
            line=lines.get(exponent),
        )
        panels.append(panel)
    euler, flow = _euler_and_flow(tables)
    ladder = Ladder(
        steps=np.array([row.step for row in euler]),
        outcomes=[row.outcome for row in euler],
        flow=flow.outcome,
        marked={letter: 10**exponent for letter, exponent in zip("ab", SHOWN, strict=True)},
    )
    return panels, ladder


def _euler_and_flow(tables: Tables) -> tuple[list[FanRow], FanRow]:
    *euler, flow = tables[FAN_TABLE]
    return euler, flow


def _power(exponent: float) -> str:
    return rf"$10^{{{exponent:g}}}$"


def fan_findings(tables: Tables) -> list[Finding]:
    euler, flow = _euler_and_flow(tables)
    coarse, fine = ({row.exponent: row for row in euler}[exponent] for exponent in SHOWN)
    solved = [row for row in euler if row.outcome != "blows up"]
    return [
        Finding(
            claim="At h = 10^-2.5 Euler's method makes the XOR points linearly separable, at 10^-3.5 it does not "
            "(the paper does not say with which parameters: ours were found by a search).",
            ours=f"{coarse.outcome} at 10^-2.5, {fine.outcome} at 10^-3.5, decided in exact arithmetic",
            agrees=(coarse.outcome, fine.outcome) == ("separable", "not separable"),
        ),
        Finding(
            claim="At neither step do trajectories cross.",
            ours=f"{coarse.crossings} and {fine.crossings} crossings at these two; at most "
            f"{max(row.crossings or 0 for row in solved)} at any of {len(solved)} steps that can be solved",
            agrees=coarse.crossings == fine.crossings == 0,
        ),
        Finding(
            claim="What the error made separable is lost with smaller steps, for good.",
            ours=f"{_ranges(euler)}; the flow itself ({FLOW.method}, tolerance {FLOW.precision:g}): {flow.outcome}",
            agrees=euler[-1].outcome == flow.outcome == "not separable" and len(list(_alike(solved))) == 2,
        ),
    ]


def _alike(rows: Sequence[FanRow]) -> Iterator[list[FanRow]]:
    """Runs of equal outcomes, from the coarsest step to the finest."""
    for _, run in groupby(rows, key=lambda row: row.outcome):
        yield list(run)


def _ranges(rows: Sequence[FanRow]) -> str:
    return ", ".join(f"{r[0].outcome} from 10^{r[0].exponent:g} to 10^{r[-1].exponent:g}" for r in _alike(rows))


FAN = Study(
    name="fan",
    paper="Figure 3",
    what="Lady Windermere's fan: XOR points become linearly separable by Euler's error alone, without any crossing",
    tables=(FAN_TABLE, FAN_STATES, FAN_LINES),
    compute=compute_fan,
    draw=draw_fan_study,
    findings=fan_findings,
)
