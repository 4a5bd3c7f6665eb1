"""The study's runs: what is tuned, through what, and how each model is measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from torch import Tensor

from windermere.adaptation import SteadySteps, StepAdaptation
from windermere.paper.studies.measuring import steps_at
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables
from windermere.paper.studies.study import SEEDS, OwnRun
from windermere.paper.studies.tied_sampler.measures import FLOW, Yardstick, audited, held_out, sampled, surely_positive
from windermere.paper.studies.tied_sampler.models import matched
from windermere.paper.studies.tied_sampler.tuning import Controller, tune
from windermere.solvers import FixedStep

EULER, MIDPOINT = (1, 2, 4, 8, 16, 20, 32, 64), (2, 4, 8)
"""Numbers of steps that samplers are tuned through."""
FEWER_EULER, FEWER_MIDPOINT = (1, 2, 4, 8, 16, 32), (2, 4)
"""Those of the second network and the second set of points."""
LOSSES, LONG = ("energy", "reward"), "-long"
EVERY = 10
"""Iterations between reviews: tuning is short."""
CONTROLLERS: Mapping[str, Controller] = {
    "algorithm2-euler": StepAdaptation(train="euler", check="midpoint", every=EVERY, threshold=0.1),
    "algorithm2-midpoint": StepAdaptation(train="midpoint", check="rk4", every=EVERY, threshold=0.1),
    "steady-euler": SteadySteps(train="euler", check="midpoint", every=EVERY, target=0.05),
    "steady-midpoint": SteadySteps(train="midpoint", check="rk4", every=EVERY, target=0.05),
    "finer-steady-midpoint": SteadySteps(train="midpoint", check="rk4", every=EVERY, target=0.02),
}
"""Their scores are logarithms of losses: 0.1 is a factor of 1.26. The targets are shares of the samples' spread."""
LONGER, LONGER_EULER, LONGER_SEEDS = 4, (4, 8, 16), SEEDS[:3]
"""Some are tuned so many times as long, with fewer seeds."""
DRAWN, DRAWN_POINTS = ("gaussians-mlp-energy-euler-2", "gaussians-mlp-reward-euler-2"), 400
"""Runs whose samples are kept, and how many of their first seed's."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How long and how exactly."""

    matching: int = 2000
    """Iterations of flow matching."""
    tuning: int = 500
    samples: int = 3000
    real: int = 6000


FULL, QUICK = Scale(), Scale(matching=800, tuning=150, samples=1500, real=3000)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run."""

    data: str
    network: str
    loss: str
    through: FixedStep | Controller
    name: str
    """What it is tuned through is called so: "euler-4", or by a controller's name."""
    longer: int = 1
    """How many times as long as others it is tuned."""

    @property
    def run(self) -> str:
        return f"{self.data}-{self.network}-{self.loss}-{self.name}{LONG if self.longer > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class TunedRow(RunRow):
    """One tuned sampler. Energy distances, or mean distances from the nearest aim: lower is better."""

    data: str
    network: str
    loss: str
    through: str
    method: str
    steps: int
    """Those of the own solver; where a controller chose it, at the end."""
    iterations: int
    evaluations: float
    """Per iteration, those of checks included."""
    own_before: float
    flow_before: float
    own: float
    """After tuning, with its own solver."""
    flow: float
    """After tuning, under the flow."""
    gap: float
    """How much worse the flow's samples are than the own ones."""
    gap_low: float
    gap_high: float
    excess_low: float
    """The lower end of the 95% interval of what the gap is above what is allowed."""
    excess_high: float
    harm: float
    """How much worse the flow's samples are than they were before tuning."""
    harm_low: float
    harm_high: float
    tied: bool | None
    """Whether the flow is surely worse than allowed; None where the interval does not tell."""
    harmed: bool | None
    """Whether the flow is surely worse than before."""
    audit: str
    """The library's own verdict."""


@dataclass(frozen=True, kw_only=True)
class SampleRow(RunRow):
    """One point of noise: where its sample is before and after tuning, with the own solver and under the flow."""

    own_before_x: float
    own_before_y: float
    flow_before_x: float
    flow_before_y: float
    own_x: float
    own_y: float
    flow_x: float
    flow_y: float


TUNED, SAMPLES = Table(MAIN, TunedRow), Table("samples", SampleRow)


def settings(quick: bool) -> Iterator[Setting]:
    """All runs, the main ones first."""
    if quick:
        yield from _settings("gaussians", "mlp", (1, 4, 16), (2,), ("steady-midpoint",))
        return
    yield from _settings("gaussians", "mlp", EULER, MIDPOINT, tuple(CONTROLLERS))
    for data, network in (("moons", "mlp"), ("gaussians", "concatsquash")):
        yield from _settings(data, network, FEWER_EULER, FEWER_MIDPOINT, ())
    for one in _settings("gaussians", "mlp", LONGER_EULER, (), ()):
        yield replace(one, longer=LONGER)


def _settings(
    data: str, network: str, euler: tuple[int, ...], midpoint: tuple[int, ...], controllers: tuple[str, ...]
) -> Iterator[Setting]:
    counts = [*(("euler", n) for n in euler), *(("midpoint", n) for n in midpoint)]
    throughs: dict[str, FixedStep | Controller] = {f"{m}-{n}": FixedStep.of(m, steps=n) for m, n in counts}
    throughs |= {name: CONTROLLERS[name] for name in controllers}
    for loss in LOSSES:
        for name, through in throughs.items():
            yield Setting(data=data, network=network, loss=loss, through=through, name=name)


def own_runs(quick: bool) -> Mapping[str, OwnRun]:
    scale = QUICK if quick else FULL
    return {one.run: OwnRun(seeds=_seeds(one, quick), do=partial(carry_out, one, scale)) for one in settings(quick)}


def _seeds(one: Setting, quick: bool) -> tuple[int, ...]:
    return SEEDS[:1] if quick else LONGER_SEEDS if one.longer > 1 else SEEDS


def carry_out(one: Setting, scale: Scale, seed: int) -> Tables:
    """Tune one sampler, and measure it before and after."""
    test, iterations = held_out(one.data, seed, scale.samples, scale.real), scale.tuning * one.longer
    before, field = (matched(one.data, one.network, seed, scale.matching) for _ in range(2))
    tuned = tune(field, test.points, one.loss, one.through, seed, iterations)
    made = {
        "own_before": sampled(before, test, tuned.solver),
        "flow_before": _flow_before(one.data, one.network, seed, scale),
        "own": sampled(field, test, tuned.solver),
        "flow": sampled(field, test, FLOW),
    }
    row = TunedRow(
        run=one.run,
        seed=seed,
        data=one.data,
        network=one.network,
        loss=one.loss,
        through=one.name,
        method=tuned.solver.method,
        steps=steps_at(tuned.solver.precision),
        iterations=iterations,
        evaluations=_digits(tuned.evaluations),
        **_judged(test.yardstick(one.loss), made),
        audit=str(audited(field, tuned.solver, test, one.loss).outcome),
    )
    return Tables({TUNED: [row], SAMPLES: _kept(one.run, seed, made) if seed == SEEDS[0] and one.run in DRAWN else []})


def _judged(by: Yardstick, made: Mapping[str, Tensor]) -> dict[str, Any]:
    """What four sets of samples are worth, from the same noise."""
    values = {name: _digits(by.value(samples)) for name, samples in made.items()}
    gap, excess = by.gap(made["flow"], made["own"]), by.excess(made["flow"], made["own"])
    harm = by.gap(made["flow"], made["flow_before"])
    ends = {"gap": gap, "excess": excess, "harm": harm}
    lows = {f"{name}_low": _digits(found.low) for name, found in ends.items()}
    highs = {f"{name}_high": _digits(found.high) for name, found in ends.items()}
    told = {"tied": surely_positive(excess), "harmed": surely_positive(harm)}
    return {**values, "gap": _digits(gap.value), "harm": _digits(harm.value), **lows, **highs, **told}


def _kept(run: str, seed: int, made: Mapping[str, Tensor]) -> list[SampleRow]:
    """Some of the samples, to be drawn."""
    columns = {
        f"{name}_{axis}": samples[:DRAWN_POINTS, k].tolist()
        for name, samples in made.items()
        for k, axis in enumerate("xy")
    }
    every = zip(*columns.values(), strict=True)
    return [SampleRow(run=run, seed=seed, **{k: round(x, 3) for k, x in zip(columns, xs, strict=True)}) for xs in every]


@lru_cache(maxsize=4)
def _flow_before(data: str, network: str, seed: int, scale: Scale) -> Tensor:
    """The samples of the flow that all runs of a seed start from."""
    test = held_out(data, seed, scale.samples, scale.real)
    return sampled(matched(data, network, seed, scale.matching), test, FLOW)


def _digits(number: float) -> float:
    """As many as mean anything."""
    return float(f"{number:.5g}")
