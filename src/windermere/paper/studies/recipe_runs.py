"""The recipes that are compared: each a way to train one model, which differs from the others in its solver, its
controller, its schedule or its treatment alone. On which data, and how many of them, a `Ground` says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

from windermere.adaptation import RandomSteps
from windermere.adaptation.tolerance import START
from windermere.paper.studies.study import QUICK_SPHERES, SEEDS
from windermere.paper.training import Adaptation, RunConfig, make_controller, paper_settings
from windermere.paper.training.treatment import Treatment
from windermere.solvers import Adaptive, FixedStep, Solver

Recipe: TypeAlias = tuple[str, tuple[Solver, Mapping[str, Any]]]
"""Its name, its solver, and what else is other than usual."""
TEN_SEEDS = tuple(range(10))
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
TREATED: Mapping[str, Treatment] = {
    "treated-methods": Treatment(methods=(("midpoint", 4), ("heun", 4), ("rk4", 2))),
    **{f"treated-ends-{end:g}": Treatment(end=end) for end in (0.25, 0.5)},
    **{f"treated-penalties-{weight:g}": Treatment(kinetic=weight, jacobian=weight) for weight in (0.01, 0.1)},
    **{f"treated-spectral-{most:g}": Treatment(spectral=most) for most in (2.5, 3.0)},
}
"""What else is done to a batch, with four midpoint steps."""
FAMILIES: Mapping[str, str] = {
    "constant": "constant steps",
    "algorithm": "Algorithms 2 and 3",
    "steady": "steady controllers",
    "random": "random steps",
    "coarse": "coarse to fine",
    "treated": "random methods or ends, penalties, bounds",
}
"""Kinds of recipes, in words; a recipe's name begins with its kind."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What recipes are tried on, and which of them."""

    data: str
    seeds: tuple[int, ...]
    more_seeds: tuple[int, ...]
    """The seeds of drawn steps with a finish."""
    constant: Mapping[str, tuple[int, ...]]
    """Steps of constant size, by method: also those that are far too few, on which the laws are tested."""
    finished: tuple[int, ...]
    """Means of drawn steps with a finish."""
    drawn: tuple[int, ...]
    """Means of drawn steps without one."""
    coarse: tuple[str, ...]
    adapted: tuple[str, ...]
    treated: tuple[str, ...]
    quick: tuple[str, ...]
    """The names of a quick study's recipes."""
    scaled: Mapping[str, Any]
    """What is other in a quick study."""


SPHERE2 = Ground(
    data="sphere2",
    seeds=TEN_SEEDS,
    more_seeds=tuple(range(30)),
    constant={"midpoint": (1, 2, 4, 8, 16, 32), "euler": (2, 4, 8, 16, 32, 64, 128), "rk4": (1, 2, 4, 8)},
    finished=(6, 4, 3),
    drawn=(3, 4, 6),
    coarse=tuple(COARSE_TO_FINE),
    adapted=("steady-midpoint", "algorithm-2-midpoint", "algorithm-2-euler", "steady-dopri54"),
    treated=tuple(TREATED),
    quick=(
        "constant-euler-4",
        "constant-euler-64",
        "constant-midpoint-4",
        "algorithm-2-midpoint",
        "steady-midpoint",
        "random-6-finish-0.2",
        "coarse-3-to-48",
        "treated-ends-0.5",
    ),
    scaled={**QUICK_SPHERES, "evaluate_every": QUICK_SPHERES["iterations"]},
)
PATCHES = Ground(
    data="mnist-patches",
    seeds=SEEDS,
    more_seeds=SEEDS,
    constant={"euler": (2, 4, 8, 16), "midpoint": (1, 2, 4), "rk4": (1,)},
    finished=(6,),
    drawn=(2, 3, 4),
    coarse=(),
    adapted=("steady-midpoint", "algorithm-2-midpoint", "algorithm-2-euler"),
    treated=("treated-penalties-0.01",),
    quick=("constant-euler-2", "constant-euler-8", "random-4", "algorithm-2-euler", "treated-penalties-0.01"),
    scaled={"iterations": 150, "evaluate_every": 150, "batch_size": 32, "seeds": (0,)},
)
"""Chosen on seed 100, which is not among these: Euler's models are tied with 2 and 4 steps, and flows with 16."""


def recipe_runs(quick: bool, ground: Ground = SPHERE2) -> dict[str, RunConfig]:
    """In the order in which they are trained: what the goal needs first."""
    every = {
        name: RunConfig(**_settings(ground, solver, settings))
        for name, (solver, settings) in dict(
            [*_scheduled(ground), *_adapted(ground), *_constant(ground), *_treated(ground)]
        ).items()
    }
    return {name: replace(every[name], **ground.scaled) for name in ground.quick} if quick else every


def family_of(recipe: str) -> str:
    return FAMILIES[recipe.partition("-")[0]]


def _scheduled(ground: Ground) -> Iterator[Recipe]:
    for mean in ground.finished:
        drawn = {"random_steps": RandomSteps(mean=mean, finish=0.2), "seeds": ground.more_seeds}
        yield f"random-{mean}-finish-0.2", (FINISH, drawn)
    for mean in ground.drawn:
        yield f"random-{mean}", (_midpoint(mean), {"random_steps": RandomSteps(mean=mean, finish=0.0)})
    for name in ground.coarse:
        stages = COARSE_TO_FINE[name]
        yield name, (_midpoint(stages[-1][1]), {"treatment": Treatment(stages=stages)})


def _adapted(ground: Ground) -> Iterator[Recipe]:
    """Where adaptation of steps begins is Hairer's first step."""
    for name in ground.adapted:
        kind, _, method = name.rpartition("-")
        adaptation: Adaptation = "steady" if kind == "steady" else "paper"
        if method == "dopri54":
            solver: Solver = Adaptive(method, tolerance=START)
            yield name, (solver, {"controller": make_controller(adaptation, solver)})
        else:
            solver = FixedStep(method, step=1.0)
            yield name, (solver, {"controller": make_controller(adaptation, solver), "first_step": "initial"})


def _constant(ground: Ground) -> Iterator[Recipe]:
    for method, counts in ground.constant.items():
        for steps in counts:
            yield f"constant-{method}-{steps}", (FixedStep.of(method, steps=steps), {})


def _treated(ground: Ground) -> Iterator[Recipe]:
    for name in ground.treated:
        yield name, (_midpoint(4), {"treatment": TREATED[name]})


def _midpoint(steps: int) -> FixedStep:
    return FixedStep.of("midpoint", steps=steps)


def _settings(ground: Ground, solver: Solver, settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {**paper_settings(ground.data, solver), "seeds": ground.seeds, "evaluate_every": 1000}
    return {"data": ground.data, "solver": solver, **known, **settings}
