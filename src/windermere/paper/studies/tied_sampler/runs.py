"""The study's runs: what is tuned, through what, and how each model is measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from torch import Tensor, nn

from windermere.adaptation import SteadySteps, StepAdaptation
from windermere.paper.studies.measuring import steps_at
from windermere.paper.studies.rows import Tables, five_digits
from windermere.paper.studies.study import HERE, SEEDS, OwnRun, Place
from windermere.paper.studies.tied_sampler.kept import kept
from windermere.paper.studies.tied_sampler.measures import (
    Yardstick,
    audited,
    held_out,
    sampled,
    surely_positive,
)
from windermere.paper.studies.tied_sampler.models import data_of, matched, matched_longer
from windermere.paper.studies.tied_sampler.rows import OPINIONS, TUNED, OpinionRow, TunedRow
from windermere.paper.studies.tied_sampler.tuning import Controller, Tuned, tune
from windermere.solvers import FixedStep

EULER, MIDPOINT = (1, 2, 4, 8, 16, 20, 32, 64), (2, 4, 8)
"""Numbers of steps that samplers are tuned through."""
FEWER_EULER, FEWER_MIDPOINT = (1, 2, 4, 8, 16, 32), (2, 4)
"""The numbers of steps of the second network and the second set of points."""
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
DRAWN = ("gaussians-mlp-energy-euler-2", "gaussians-mlp-reward-euler-2")
"""Runs of whose first seed samples are kept."""
MATCHING = "matching"
"""In the place of a loss: nothing is tuned, flow matching goes on for longer."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How long and how exactly."""

    matching: int = 2000
    """Iterations of flow matching."""
    tuning: int = 500
    samples: int = 3000
    real: int = 6000
    audited: int = 1000
    audited_real: int = 3000
    drawn: tuple[str, ...] = DRAWN

    @property
    def longer_matching(self) -> int:
        """Iterations of the control: as many as tuning through 8 steps has evaluations of a batch."""
        return 8 * self.tuning


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


def settings(quick: bool) -> Iterator[Setting]:
    """All runs, the main ones first."""
    if quick:
        yield from settings_of("gaussians", "mlp", (1, 4, 16), (2,), ("steady-midpoint",))
        return
    yield from settings_of("gaussians", "mlp", EULER, MIDPOINT, tuple(CONTROLLERS))
    for data, network in (("moons", "mlp"), ("gaussians", "concatsquash")):
        yield from settings_of(data, network, FEWER_EULER, FEWER_MIDPOINT)
    for one in settings_of("gaussians", "mlp", LONGER_EULER):
        yield replace(one, longer=LONGER)


def settings_of(
    data: str,
    network: str,
    euler: tuple[int, ...],
    midpoint: tuple[int, ...] = (),
    controllers: tuple[str, ...] = (),
    losses: tuple[str, ...] = LOSSES,
) -> Iterator[Setting]:
    counts = [*(("euler", n) for n in euler), *(("midpoint", n) for n in midpoint)]
    throughs: dict[str, FixedStep | Controller] = {f"{m}-{n}": FixedStep.of(m, steps=n) for m, n in counts}
    throughs |= {name: CONTROLLERS[name] for name in controllers}
    for loss in losses:
        for name, through in throughs.items():
            yield Setting(data=data, network=network, loss=loss, through=through, name=name)


def own_runs(quick: bool) -> Mapping[str, OwnRun]:
    if quick:
        return runs_of(settings(quick), QUICK, SEEDS[:1])
    every = runs_of(settings(quick), FULL, SEEDS)
    return {run: replace(own, seeds=LONGER_SEEDS) if run.endswith(LONG) else own for run, own in every.items()}


def runs_of(some: Iterator[Setting], scale: Scale, seeds: tuple[int, ...]) -> dict[str, OwnRun]:
    return {one.run: OwnRun(seeds=seeds, do=partial(carry_out, one, scale)) for one in some}


def carry_out(one: Setting, scale: Scale, seed: int, place: Place = HERE) -> Tables:
    """Tune one sampler, and measure it before and after."""
    test = held_out(one.data, seed, scale.samples, scale.real, place)
    before = matched(one.data, one.network, seed, scale.matching, place)
    field, tuned, iterations = _tuned(one, scale, seed, place)
    made = {
        "own_before": sampled(before, test, tuned.solver),
        "flow_before": _flow_before(one.data, one.network, seed, scale, place),
        "own": sampled(field, test, tuned.solver),
        "flow": _flow(one, field, scale, seed, place),
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
        evaluations=five_digits(tuned.evaluations),
        **_judged(test.yardstick(one.loss), made),
        audit=str(audited(field, tuned.solver, test, one.loss, scale.audited, scale.audited_real).outcome),
    )
    opinions = [
        OpinionRow(run=one.run, seed=seed, yardstick=name, **_judged(yardstick, made))
        for name, yardstick in test.opinions(one.loss).items()
    ]
    tables = kept(one.run, seed, made) if seed == SEEDS[0] and one.run in scale.drawn else Tables()
    if opinions:
        tables[OPINIONS] = opinions
    tables[TUNED] = [row]
    return tables


def _tuned(one: Setting, scale: Scale, seed: int, place: Place) -> tuple[nn.Module, Tuned, int]:
    """The tuned velocity, how its tuning ended, and its iterations."""
    if one.loss == MATCHING:
        assert isinstance(one.through, FixedStep)  # no controller adapts what no solver takes part in
        field = matched_longer(one.data, one.network, seed, scale.matching, scale.longer_matching, place)
        return field, Tuned(one.through, 1.0), scale.longer_matching
    field, iterations = matched(one.data, one.network, seed, scale.matching, place), scale.tuning * one.longer
    return field, tune(field, data_of(one.data, place), one.loss, one.through, seed, iterations), iterations


def _judged(by: Yardstick, made: Mapping[str, Tensor]) -> dict[str, Any]:
    """What four sets of samples are worth, from the same noise."""
    values = {name: five_digits(by.value(samples)) for name, samples in made.items()}
    gap, excess = by.gap(made["flow"], made["own"]), by.excess(made["flow"], made["own"])
    harm = by.gap(made["flow"], made["flow_before"])
    ends = {"gap": gap, "excess": excess, "harm": harm}
    lows = {f"{name}_low": five_digits(found.low) for name, found in ends.items()}
    highs = {f"{name}_high": five_digits(found.high) for name, found in ends.items()}
    told = {"tied": surely_positive(excess), "harmed": surely_positive(harm)}
    return {**values, "gap": five_digits(gap.value), "harm": five_digits(harm.value), **lows, **highs, **told}


@lru_cache(maxsize=4)
def _flow_before(data: str, network: str, seed: int, scale: Scale, place: Place = HERE) -> Tensor:
    """The samples of the flow that all runs of a seed start from."""
    test = held_out(data, seed, scale.samples, scale.real, place)
    return sampled(matched(data, network, seed, scale.matching, place), test, test.flow)


def _flow(one: Setting, field: nn.Module, scale: Scale, seed: int, place: Place) -> Tensor:
    """The samples of the flow after tuning; the control has one for all numbers of steps."""
    if one.loss == MATCHING:
        return _flow_of_control(one.data, one.network, seed, scale, place)
    test = held_out(one.data, seed, scale.samples, scale.real, place)
    return sampled(field, test, test.flow)


@lru_cache(maxsize=2)
def _flow_of_control(data: str, network: str, seed: int, scale: Scale, place: Place) -> Tensor:
    test = held_out(data, seed, scale.samples, scale.real, place)
    field = matched_longer(data, network, seed, scale.matching, scale.longer_matching, place)
    return sampled(field, test, test.flow)
