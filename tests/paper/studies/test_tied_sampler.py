"""Samplers tuned through their few steps: what is trained, how it is judged, and what the findings say."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.processes import ROOT
from windermere.fast.cpu.rows import RowsInC
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import SEEDS
from windermere.paper.studies.tied_sampler import models, runs
from windermere.paper.studies.tied_sampler.findings import constant, critical_steps, sampler_findings
from windermere.paper.studies.tied_sampler.kept import POINTS_KEPT
from windermere.paper.studies.tied_sampler.measures import FLOW, held_out, sampled
from windermere.paper.studies.tied_sampler.rows import OPINIONS, SAMPLES, TUNED, TunedRow
from windermere.paper.studies.tied_sampler.runs import Scale, Setting, own_runs
from windermere.paper.studies.tied_sampler.study import TIED_SAMPLER
from windermere.paper.studies.tied_sampler.text import numbers, opinions
from windermere.paper.studies.tied_sampler.tuning import energy_distance, tune
from windermere.solvers import FixedStep, final_state

TINY = Scale(matching=60, tuning=30, samples=200, real=300)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def a_row(steps: int, seed: int = 0, **changes: Any) -> TunedRow:
    zeros = {one.name: 0.0 for one in fields(TunedRow) if one.type == "float" or one.type is float}
    row = TunedRow(
        run=f"gaussians-mlp-energy-euler-{steps}",
        seed=seed,
        data="gaussians",
        network="mlp",
        loss="energy",
        through=f"euler-{steps}",
        method="euler",
        steps=steps,
        iterations=1,
        tied=False,
        harmed=False,
        audit="FLOW",
        **zeros,
    )
    return replace(row, **changes)


# What is tuned.


def test_points_have_the_middle_and_the_spread_that_one_reads_off_their_formula() -> None:
    eight, moons = (draw(20_000, generator()) for draw in (models.eight_gaussians, models.two_moons))
    radius = eight.norm(dim=1)
    assert float((radius - 2).abs().max()) < 1.2
    sectors = (torch.atan2(eight[:, 1], eight[:, 0]) * 4 / np.pi).round() % 8
    assert np.bincount(sectors.int().numpy()).min() > 2300
    upper = moons[moons[:, 1] > 0.8]
    assert float(upper[:, 0].mean()) == pytest.approx(-0.75, abs=0.05)
    assert moons.mean(dim=0).tolist() == pytest.approx([0, 0], abs=0.03)


@pytest.mark.parametrize("data", models.POINTS)
def test_a_sample_falls_short_of_a_reward_by_its_distance_from_the_nearest_aim(data: str) -> None:
    points = models.POINTS[data]
    samples = points.aims.repeat_interleave(2, dim=0) + torch.tensor([[0.3, 0.4], [0.0, 0.0]]).repeat(2, 1)
    assert points.reward.shortfall(samples).tolist() == pytest.approx([0.5, 0, 0.5, 0], abs=1e-6)
    real = points.draw(4000, generator())
    assert float((points.reward.shortfall(real) < 0.3).float().mean()) > 0.03  # aims lie among the data


@pytest.mark.parametrize("network", models.NETWORKS)
def test_velocities_are_solved_in_c_with_the_gradient_of_pytorch(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import windermere as wm
    from windermere.fast.cpu import compiled

    if compiled.library("float", "rows") is None:
        pytest.skip("no C compiler here")
    found, plan = list[Any](), RowsInC.native_of

    def spied(self: RowsInC, problem: Any) -> Any:
        found.append(plan(self, problem))
        return found[-1]

    monkeypatch.setattr(RowsInC, "native_of", spied)
    field, noise, gradients = models._made("gaussians", network, 0), torch.randn(50, 2, generator=generator()), []
    for fast in (True, False):
        with wm.fast_paths(fast):
            end = final_state(field, noise, FixedStep.of("midpoint", steps=3))
        assert isinstance(end, torch.Tensor)
        gradients.append(torch.autograd.grad(end.square().sum(), list(field.parameters())))
    assert found
    assert None not in found
    for ours, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, slow, rtol=2e-4, atol=2e-4)


def test_matching_takes_noise_to_the_data_and_is_the_same_each_time() -> None:
    models.matched_weights.cache_clear()
    first = models.matched_weights("moons", "mlp", 3, 150)
    models.matched_weights.cache_clear()
    again = models.matched_weights("moons", "mlp", 3, 150)
    assert all(torch.equal(first[name], again[name]) for name in first)
    test = held_out("moons", 3, 300, 600)
    distance = test.yardstick("energy")
    flow = sampled(models.matched("moons", "mlp", 3, 150), test, FLOW)
    assert distance.value(flow) < distance.value(test.noise) / 3


# How it is tuned.


def test_the_energy_distance_is_that_of_all_pairs() -> None:
    one, other = torch.randn(7, 2, generator=generator()), torch.randn(5, 2, generator=generator()) + 1

    def mean(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(np.mean([[float((x - y).norm()) for y in b] for x in a]))

    wanted = 2 * mean(one, other) - mean(one, one) - mean(other, other)
    assert float(energy_distance(one, other)) == pytest.approx(wanted, rel=1e-4)


def test_tuning_through_one_step_gains_with_it_and_costs_one_evaluation() -> None:
    field, test = models.matched("gaussians", "mlp", 0, 60), held_out("gaussians", 0, 200, 300)
    one = FixedStep.of("euler", steps=1)
    before = test.yardstick("reward").value(sampled(field, test, one))
    tuned = tune(field, test.data, "reward", one, 0, 60)
    assert (tuned.solver, tuned.evaluations) == (one, 1.0)
    assert test.yardstick("reward").value(sampled(field, test, one)) < before - 0.2


@pytest.mark.parametrize("name", runs.CONTROLLERS)
def test_a_controllers_cost_has_its_checks(name: str) -> None:
    controller = runs.CONTROLLERS[name]
    tuned = tune(models.matched("gaussians", "mlp", 0, 60), models.POINTS["gaussians"], "energy", controller, 0, 10)
    stages = {"euler": 1, "midpoint": 2, "rk4": 4}
    check = controller.check_solver(1 / 4)
    trained = 10 * 4 * stages[controller.train]  # with the first step up to the review in the last iteration
    checked = round(1 / check.step + 0.499999) * stages[controller.check]
    assert 10 * tuned.evaluations >= trained + checked
    if name.endswith("steady-midpoint"):
        assert 10 * tuned.evaluations == trained + checked


# How it is judged.


def a_trial(flow: Callable[[torch.Tensor], torch.Tensor], loss: str) -> tuple[bool, float, float]:
    test = held_out("gaussians", 0, 400, 800)
    own = test.data.draw(400, generator()).double()
    excess = test.yardstick(loss).excess(flow(own), own)
    return excess.low > 0, excess.low, excess.high


@pytest.mark.parametrize("loss", runs.LOSSES)
def test_only_samples_that_are_surely_worse_than_allowed_are_told_so(loss: str) -> None:
    worse, _, _ = a_trial(lambda own: own + torch.tensor([0.0, 4.0]), loss)
    same, _, high = a_trial(lambda own: own, loss)
    assert worse
    assert not same
    assert high < 0


def test_a_shortfall_may_be_half_as_much_again_and_no_more() -> None:
    test = held_out("gaussians", 0, 400, 800)
    aim, away = models.POINTS["gaussians"].aims[0].double(), torch.tensor([1.0, 0.0], dtype=torch.float64)
    yardstick = test.yardstick("reward")
    own = aim + 0.1 * away.expand(50, 2)
    for times, tied in ((1.49, False), (1.51, True)):
        assert (yardstick.excess(aim + 0.1 * times * away.expand(50, 2), own).low > 0) == tied


def test_the_critical_number_is_that_from_which_on_none_fails() -> None:
    def asked(failing: set[int]) -> tuple[int, int]:
        by_steps = constant([a_row(n, seed) for n in (8, 1, 2, 4) for seed in (0, 1)], "euler")
        assert list(by_steps) == [1, 2, 4, 8]
        return critical_steps(by_steps, lambda row: row.seed == 1 and row.steps in failing)

    assert asked(set()) == (0, 1)
    assert asked({1, 2}) == (2, 4)
    assert asked({4}) == (4, 8)  # that 1 and 2 pass is of no help
    assert asked({1, 8}) == (8, 0)


def test_findings_count_seeds_and_name_the_unsure_ones() -> None:
    rows = [a_row(n, seed, tied=n < 4) for n in (1, 2, 4, 8) for seed in SEEDS]
    rows[-1] = replace(rows[-1], tied=None)
    rows += [a_row(5, seed, through="steady-midpoint", method="midpoint", evaluations=10.0) for seed in SEEDS]
    found = [finding.ours for finding in sampler_findings(Tables({TUNED: rows}))]
    assert found[0].startswith(
        "5 of 5 with 1, 5 of 5 with 2, 0 of 5 with 4, 0 of 5 with 8 (5 seeds); not sure: 1 with 8"
    )
    assert found[1] == "tied: 2-4; harmed: none at any; TIED by the audit: none at any"
    assert found[-1].startswith("0 of 5 tied, 0 not sure, 0 harmed; audits: 5 FLOW")
    assert found[-1].endswith("10.0 evaluations per iteration, 5 steps at the end")


# The study.


def test_the_issues_runs_are_there_with_their_seeds() -> None:
    every = own_runs(False)
    for loss in runs.LOSSES:
        for steps in ("euler-1", "euler-2", "euler-4", "euler-8", "euler-16", "euler-20", "euler-32", "euler-64"):
            assert every[f"gaussians-mlp-{loss}-{steps}"].seeds == SEEDS
    assert {name for name, run in every.items() if run.seeds != SEEDS} == {n for n in every if n.endswith(runs.LONG)}
    assert set(runs.DRAWN) <= every.keys()
    assert len(every) == 32 + 2 * 16 + 6


def test_a_run_is_the_same_again_and_its_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    through = FixedStep.of("euler", steps=2)
    one = Setting(data="gaussians", network="mlp", loss="energy", through=through, name="euler-2")
    assert one.run in runs.DRAWN
    for cached in (models.matched_weights, held_out, runs._flow_before):
        cached.cache_clear()
    first = runs.carry_out(one, TINY, 0)
    for cached in (models.matched_weights, held_out, runs._flow_before):
        cached.cache_clear()
    assert runs.carry_out(one, TINY, 0) == first
    (row,) = first[TUNED]
    assert row.gap == pytest.approx(row.flow - row.own, abs=1e-4)
    assert row.harm == pytest.approx(row.flow - row.flow_before, abs=1e-4)
    assert len(first[SAMPLES]) == min(TINY.samples, POINTS_KEPT)
    paths = TIED_SAMPLER.draw(first, tmp_path)
    assert [path.name for path in paths] == ["tied-sampler.png", "tied-sampler-samples.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)


@pytest.mark.thorough
def test_the_quick_study_ends_with_findings(tmp_path: Path) -> None:
    ended = run_study(TIED_SAMPLER, tmp_path, Choice(quick=True))
    assert (ended.reason, ended.left) == ("finished", [])
    rows = TUNED.read(tmp_path)
    assert len(rows) == len(own_runs(True))
    assert next(row for row in rows if row.run == "gaussians-mlp-energy-euler-1").tied
    assert len(ended.figures) == 2
    assert all(not finding.agrees and finding.beyond for finding in sampler_findings(Tables({TUNED: rows})))


def test_runs_that_are_tuned_for_longer_are_told_of_before_those_of_the_usual_time_are_there() -> None:
    longer = a_row(4, run=f"gaussians-mlp-energy-euler-4{runs.LONG}", tied=True)
    (told,) = sampler_findings(Tables({TUNED: [longer]}))
    assert told.ours == "so: 1 of 1 with 4, own and flow after, by steps, 4: 0 and 0 (one seed)"


# The pages.


def committed() -> list[TunedRow]:
    rows = TUNED.read(ROOT / "results/tied-sampler")
    if not rows:
        pytest.skip("a source distribution of the package alone has no results")
    return rows


def test_the_committed_numbers_are_those_of_the_committed_table() -> None:
    assert numbers(committed()) == (ROOT / "results/tied-sampler/numbers.md").read_text()
    images = ROOT / "results/tied-sampler-images"
    told = "\n".join((numbers(TUNED.read(images)), opinions(OPINIONS.read(images))))
    assert told == (images / "numbers.md").read_text()


def test_every_line_of_the_pages_tables_is_one_of_the_numbers() -> None:
    images = (ROOT / "results/tied-sampler-images/numbers.md").read_text()
    known = (numbers(committed()) + images).splitlines()
    page = (ROOT / "docs/tied-sampler.md").read_text().splitlines()
    names = ("| euler ", "| midpoint ", *(f"| {name} " for name in runs.CONTROLLERS))
    lines = [line for line in page if line.startswith(names)]
    assert len(lines) >= 2 * (len(runs.EULER) + len(runs.MIDPOINT) + len(runs.CONTROLLERS))
    assert [line for line in lines if line not in known] == []


def test_all_planned_seeds_are_committed() -> None:
    planned = {(name, seed) for name, run in own_runs(False).items() for seed in run.seeds}
    assert planned == {row.key for row in committed()}
