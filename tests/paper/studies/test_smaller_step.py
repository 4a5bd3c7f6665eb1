"""Forks of Algorithm 2: two trainings from each check that fails, and what is said of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from tests.paper.studies.test_toy import through_csv
from tests.paper.training.small import a_config, adapted_config, optimizer_for, some_spheres
from windermere.errors import UsageError
from windermere.nn import ode_blocks
from windermere.paper.architectures import architecture, initialise
from windermere.paper.figures.forks_figure import Fork, ForksFigure
from windermere.paper.studies.forks import BEFORE, FLOW, SAME, SMALLER, Followed, ForkRow, WayRow, follow
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.smaller_step import CLAIM, FORKS, SMALLER_STEP, WAY, configs
from windermere.paper.training.batches import Batches
from windermere.solvers import FixedStep, Solver

HALF, QUARTER = FixedStep.of("euler", steps=2), FixedStep.of("euler", steps=4)
MOMENTS = (BEFORE, SMALLER, SAME)


@pytest.fixture(scope="module")
def followed() -> list[Followed]:
    """Two reviews of two seeds; all but equal scores fail the first."""
    config = adapted_config("paper", rule={"threshold": 1e-9, "every": 5}, seeds=(0, 3), iterations=10, lr=1e-2)
    return list(follow("small", config, *some_spheres(), lambda share: None))


def alone(seed: int, solvers: Sequence[Solver]) -> torch.nn.Module:
    """A plain loop, with a solver for each iteration."""
    model = initialise(architecture("sphere2", HALF), seed)
    (block,), config, (inputs, labels) = ode_blocks(model), a_config(lr=1e-2), some_spheres()[0]
    optimizer, batches = optimizer_for(config, list(model.parameters())), Batches(len(labels), 16, [seed], "cpu")
    for iteration, block.solver in enumerate(solvers):
        chosen = batches.indices(iteration)[0]
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: torch.nn.Module, solver: Solver) -> float:
    (block,), (inputs, labels) = ode_blocks(model), some_spheres()[1]
    block.solver = solver
    return float((model(inputs).argmax(1) == labels).double().mean())


@pytest.mark.parametrize("seed", [0, 3])
def test_both_ways_begin_with_the_weights_and_the_batch_of_the_check_and_differ_in_their_step_alone(
    seed: int, followed: Sequence[Followed]
) -> None:
    rows = {row.moment: row for row in followed[0].forks if row.seed == seed}
    assert list(rows) == list(MOMENTS)
    ways = {BEFORE: [HALF] * 4, SMALLER: [HALF] * 4 + [QUARTER] * 5, SAME: [HALF] * 9}
    for moment, way in ways.items():
        model, row = alone(seed, way), rows[moment]
        assert (row.iteration, row.steps, row.steps_after) == (5, 2, 4)
        found = [accuracy(model, solver) for solver in (HALF, QUARTER, FLOW)]
        assert [row.own, row.halved, row.flow] == pytest.approx(found, abs=0.0101)  # one of 100 points


def test_the_training_itself_is_not_changed_by_what_leaves_it(followed: Sequence[Followed]) -> None:
    way = [row for found in followed for row in found.way if row.seed == 3]
    assert [(row.iteration, row.steps, row.failed) for row in way] == [(5, 2, True), (10, 4, False)]
    model = alone(3, [HALF] * 5 + [QUARTER] * 5)
    assert way[1].accuracy == pytest.approx(accuracy(model, QUARTER), abs=0.0101)


def test_only_algorithm_2_is_followed() -> None:
    with pytest.raises(UsageError, match="give a config with a StepAdaptation"):
        next(follow("small", a_config(), *some_spheres(), lambda share: None))


def test_the_study_follows_euler_steps_of_any_data_set_at_the_papers_rate_and_quickly_two_seeds() -> None:
    for data in ("sphere2", "mnist", "cifar10"):
        full = configs(data, quick=False)
        assert [name.split("-paper")[0] for name in full] == [f"{data}-euler-midpoint", f"{data}-euler-rk4"]
        assert all(config.seeds == (0, 1, 2, 3, 4) for config in full.values())
    (config,) = configs("sphere2", quick=True).values()
    assert (config.seeds, config.iterations) == ((0, 1), 1500)
    assert find_study("figure5c") is find_study("figure5d") is SMALLER_STEP


# What is said of it.


def tables(gains: Sequence[float], iterations: int = 10_000) -> Tables:
    """Two checks of each seed, after which the flow gains so much over the control."""
    check = ForkRow(
        run="sphere2-euler-midpoint-paper-0.1", seed=0, iteration=50, moment=BEFORE, steps=4, steps_after=8,
        own=0.9, halved=0.85, midpoint=0.7, rk4=0.7, flow=0.7,
    )  # fmt: skip
    forks = [
        replace(check, seed=seed, moment=moment, iteration=at, flow=flow)
        for seed, gain in enumerate(gains)
        for at in (50, iterations)
        for moment, flow in zip(MOMENTS, (0.7, 0.7 + gain, 0.7), strict=True)
    ]
    way = [
        WayRow(run=check.run, seed=seed, iteration=at, steps=4, accuracy=0.9, failed=True)
        for seed in range(len(gains))
        for at in (50, iterations)
    ]
    return Tables({FORKS: forks, WAY: way})


@pytest.mark.parametrize(
    ("gains", "iterations", "agrees"),
    [
        ((0.08, 0.07, 0.09), 10_000, True),
        ((-0.08, -0.07, -0.09), 10_000, False),
        ((0.08, -0.07, 0.01), 10_000, None),
        ((0.08, 0.07, 0.09), 1500, None),
    ],
)
def test_a_model_is_corrected_if_all_seeds_together_surely_gain_over_their_controls(
    gains: Sequence[float], iterations: int, agrees: bool | None
) -> None:
    (finding,) = SMALLER_STEP.findings(tables(gains, iterations))
    assert (finding.claim, finding.agrees) == (CLAIM, agrees)
    assert f"{100 * sum(gains) / 3:.1f} points higher" in finding.ours
    assert f"3 seeds: p = {stats.ttest_1samp(gains, 0).pvalue:.1g})" in finding.ours
    assert "20.0 points at the 6 failing checks, 15.0 of the same weights" in finding.ours


def test_the_table_and_the_figure_are_made_from_the_csv_files(tmp_path: Path) -> None:
    read = through_csv(tables((0.08, 0.07, 0.09)), tmp_path)
    paths = SMALLER_STEP.draw(read, tmp_path)
    assert [path.name for path in paths] == ["euler-midpoint.png", "forks.md"]
    assert "|  | trained on with h/2 | 90.0 (90.0 to 90.0) | 85.0 (85.0 to 85.0) | 78.0 (77.0 to 79.0) |" in (
        paths[1].read_text()
    )


def test_of_many_checks_the_first_of_each_eighth_is_marked() -> None:
    forks = [Fork(iteration=at, own=(1, 1), midpoint=(1, 1), rk4=(1, 1)) for at in (50, 100, 350, 400, 450, 800)]
    figure = ForksFigure(
        title="", seed=0, iterations=[50, 800], steps=[1, 1], accuracy=[1, 1], forks=forks, every=50, seeds=[0], flow=[]
    )
    assert [fork.iteration for fork in figure.marked] == [50, 350, 450, 800]
