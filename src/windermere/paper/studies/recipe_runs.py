"""The recipes that are compared: each a way to train Sphere2's model, which differs from the others in its solver, its
controller, its schedule or its treatment alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from windermere.adaptation import RandomSteps
from windermere.adaptation.tolerance import START
from windermere.paper.studies.study import QUICK_SPHERES
from windermere.paper.training import Adaptation, RunConfig, make_controller, paper_settings
from windermere.paper.training.treatment import Treatment
from windermere.solvers import Adaptive, FixedStep, Solver

TEN_SEEDS = tuple(range(10))
CONSTANT: Mapping[str, tuple[int, ...]] = {
    "midpoint": (1, 2, 4, 8, 16, 32),
    "euler": (2, 4, 8, 16, 32, 64, 128),
    "rk4": (1, 2, 4, 8),
}
"""Steps of constant size, by method: also those that are far too few, on which the laws are tested."""
FINISH = FixedStep.of("midpoint", steps=32)
"""What random steps end with."""


def _stages(*steps: int, until: float = 0.0, equal: bool = False) -> tuple[tuple[float, int], ...]:
    """From a share of all iterations on, the numbers of steps one after the other, each for as long as costs the same,
    or equally long."""
    shares = [1.0 if equal else 1 / n for n in steps]
    ends = [until + (1 - until) * end / sum(shares) for end in accumulate(shares)]
    return tuple(zip([*ends[:-1], 1.0], steps, strict=True))


COARSE_TO_FINE: Mapping[str, tuple[tuple[float, int], ...]] = {
    "coarse-6-finish-0.2": ((0.8, 6), *_stages(16, 32, until=0.8)),
    "coarse-4-finish-0.2": ((0.8, 4), *_stages(8, 16, 32, until=0.8)),
    "coarse-3-finish-0.2": ((0.8, 3), *_stages(8, 16, 32, until=0.8)),
    "coarse-3-to-48": _stages(3, 6, 12, 24, 48),
    "coarse-2-to-32": _stages(2, 4, 8, 16, 32),
    "coarse-2-to-16-equal": _stages(2, 4, 8, 16, equal=True),
}
"""Stages, each with its end and its steps; the first three as random steps with a finish, with nothing drawn."""
FAMILIES: Mapping[str, str] = {
    "constant": "constant steps",
    "algorithm": "Algorithms 2 and 3",
    "steady": "steady controllers",
    "random": "random steps",
    "coarse": "coarse to fine",
    "treated": "random methods or ends, penalties",
}
"""Kinds of recipes, in words; a recipe's name begins with its kind."""
QUICK = (
    "constant-euler-4",
    "constant-euler-64",
    "constant-midpoint-4",
    "algorithm-2-midpoint",
    "steady-midpoint",
    "random-6-finish-0.2",
    "coarse-3-to-48",
    "treated-ends-0.5",
)


def recipe_runs(quick: bool) -> dict[str, RunConfig]:
    """In the order in which they are trained: what the goal needs first."""
    every = dict([*_scheduled(), *_adapted(), *_constant(), *_treated()])
    return {name: _scaled(every[name]) for name in QUICK} if quick else every


def family_of(recipe: str) -> str:
    return FAMILIES[recipe.partition("-")[0]]


def _scheduled() -> Iterator[tuple[str, RunConfig]]:
    for mean in (6, 4, 3):
        drawn = _with(FINISH, random_steps=RandomSteps(mean=mean, finish=0.2))
        yield f"random-{mean}-finish-0.2", replace(drawn, seeds=tuple(range(30)))
    for mean in (3, 4, 6):
        yield f"random-{mean}", _with(_midpoint(mean), random_steps=RandomSteps(mean=mean, finish=0.0))
    for name, stages in COARSE_TO_FINE.items():
        yield name, _with(_midpoint(stages[-1][1]), treatment=Treatment(stages=stages))


def _adapted() -> Iterator[tuple[str, RunConfig]]:
    yield "steady-midpoint", _controlled("steady", _first("midpoint"))
    yield "algorithm-2-midpoint", _controlled("paper", _first("midpoint"))
    yield "algorithm-2-euler", _controlled("paper", _first("euler"))
    yield "steady-dopri54", _controlled("steady", Adaptive("dopri54", tolerance=START))


def _constant() -> Iterator[tuple[str, RunConfig]]:
    for method, counts in CONSTANT.items():
        for steps in counts:
            yield f"constant-{method}-{steps}", _with(FixedStep.of(method, steps=steps))


def _treated() -> Iterator[tuple[str, RunConfig]]:
    drawn = (("midpoint", 4), ("heun", 4), ("rk4", 2))
    yield "treated-methods", _with(_midpoint(4), treatment=Treatment(methods=drawn))
    for end in (0.25, 0.5):
        yield f"treated-ends-{end:g}", _with(_midpoint(4), treatment=Treatment(end=end))
    for weight in (0.01, 0.1):
        both = Treatment(kinetic=weight, jacobian=weight)
        yield f"treated-penalties-{weight:g}", _with(_midpoint(4), treatment=both)


def _midpoint(steps: int) -> FixedStep:
    return FixedStep.of("midpoint", steps=steps)


def _first(method: str) -> FixedStep:
    """Where adaptation begins is Hairer's first step."""
    return FixedStep(method, step=1.0)


def _controlled(adaptation: Adaptation, solver: Solver) -> RunConfig:
    rule = make_controller(adaptation, solver)
    return _with(solver, controller=rule, first_step="given" if isinstance(solver, Adaptive) else "initial")


def _with(solver: Solver, **settings: Any) -> RunConfig:
    values = {**paper_settings("sphere2", solver), "seeds": TEN_SEEDS, "evaluate_every": 1000, **settings}
    return RunConfig(data="sphere2", solver=solver, **values)


def _scaled(config: RunConfig) -> RunConfig:
    return replace(config, **QUICK_SPHERES, evaluate_every=QUICK_SPHERES["iterations"])
