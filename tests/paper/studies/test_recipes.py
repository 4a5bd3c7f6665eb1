"""The studies of recipes and of what being tied costs: same tables after a kill, and findings from rows."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.paper.data.small import mnist_contents, write
from tests.processes import by_forks
from windermere.paper import data
from windermere.paper.studies import recipe_measures
from windermere.paper.studies.being_tied import IMAGE_TIED, TIED_STUDY, WORDS, words
from windermere.paper.studies.being_tied_measures import (
    MEASURES,
    TIED,
    TiedRow,
    attacked,
    calibration_error,
    lost_share,
    strayed_share,
    with_noise,
)
from windermere.paper.studies.recipe_measures import RECIPES, RecipeRow, until_passed
from windermere.paper.studies.recipe_runs import FAMILIES, PATCHES, recipe_runs
from windermere.paper.studies.recipes import IMAGE_RECIPES, RECIPE_STUDY, findings, law_of
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.runner import Progress
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Finding, Finished, Study
from windermere.paper.training import Labelled, RunConfig, open_run, train, trained_ensemble
from windermere.records import read_metrics

SEEDS = (0, 1)


def shortened(study: Study, *names: str) -> Study:
    """With a few short runs only, and undrawn."""
    known = study.runs(False)
    short = {name: replace(known[name], iterations=60, evaluate_every=60, checkpoint_every=20) for name in names}
    return replace(study, runs=lambda quick: short, draw=lambda tables, folder: [])


STUDIES = {
    "recipes": shortened(RECIPE_STUDY, "random-4-finish-0.2", "algorithm-2-midpoint"),
    "what-being-tied-costs": shortened(TIED_STUDY, "constant-euler-2", "constant-euler-8"),
    "recipes-mnist": shortened(IMAGE_RECIPES, "random-2"),
    "what-being-tied-costs-mnist": shortened(IMAGE_TIED, "constant-euler-2"),
}


@pytest.fixture
def _small_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mnist", mnist_contents(train=64, test=40))
    monkeypatch.setenv("WINDERMERE_DATA", str(tmp_path))


def loaded(name: str, seed: int) -> tuple[Labelled, Labelled]:
    """As they are on disk now: a study keeps what it has loaded."""
    sets = data.load(name, seed=seed)
    return sets.train, sets.test


@by_forks
@pytest.mark.usefixtures("_small_images")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * name.endswith("-mnist")) for name in STUDIES]
)  # studies of images are those of spheres on other data
def test_a_study_that_was_killed_in_each_run_ends_with_the_same_table(name: str, tmp_path: Path) -> None:
    study, choice = STUDIES[name], Choice(seeds=SEEDS)
    run_study(study, tmp_path / "whole", choice, load=loaded)
    for run in study.runs(False):
        assert killed_in(run, study, tmp_path / "pieces") == -signal.SIGKILL
    run_study(study, tmp_path / "pieces", choice, load=loaded)
    assert (tmp_path / "pieces" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()
    assert {row.seed for row in study.main.read(tmp_path / "whole")} == set(SEEDS)


def killed_in(run: str, study: Study, out: Path) -> int:
    """The exit status of a process that is killed in the middle of this run."""

    def die(now: Progress) -> None:
        if now.name == run and now.report is not None and now.report.iteration >= 50:
            os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        try:
            run_study(study, out, Choice(seeds=SEEDS), report=die, load=loaded)
        finally:
            os._exit(0)  # it was to be killed
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------------------------------------------------
# Recipes


def test_every_recipe_has_the_papers_settings_ten_seeds_and_a_family() -> None:
    for name, config in recipe_runs(False).items():
        assert (config.data, config.iterations, config.lr, config.batch_size) == ("sphere2", 10_000, 1e-4, 128)
        assert len(config.seeds) >= 10
        assert name.partition("-")[0] in FAMILIES
    assert recipe_runs(True).keys() <= recipe_runs(False).keys()


def test_every_recipe_for_images_is_one_of_spheres_but_for_data_settings_and_seeds() -> None:
    """Shorter ones of constant steps and of few drawn ones are there besides."""
    spheres, images = recipe_runs(False), recipe_runs(False, PATCHES)
    assert recipe_runs(True, PATCHES).keys() <= images.keys()
    assert images.keys() - spheres.keys() == {"random-2"}
    kept = ("data", "seeds", "iterations", "batch_size", "lr")
    for name in images.keys() & spheres.keys():
        its = {key: getattr(images[name], key) for key in kept}
        assert replace(spheres[name], **its) == images[name]
        assert its["data"] == "mnist-patches"
        assert 100 not in its["seeds"]  # by which the setting was chosen


def test_what_goes_on_until_its_check_has_passed_is_the_longer_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seeds are let go one after the other, as their last review passes."""
    config = replace(recipe_runs(False)["algorithm-2-midpoint"], seeds=SEEDS, iterations=50, evaluate_every=50)
    passes = {50: {0: False, 1: True}, 100: {0: False}, 150: {0: True}}
    monkeypatch.setattr(
        recipe_measures, "_failed", lambda folder, own: {s for s, ok in passes[own.iterations].items() if not ok}
    )
    first, longer = (trained(tmp_path / str(n), replace(config, iterations=n)) for n in (50, 150))
    found = {model.config.seeds: (model, costs) for model, costs in until_passed(first)}
    assert found.keys() == {(0,), (1,)}
    assert_same_model(found[0,][0].member(0), longer.trained.member(0))
    assert_same_model(found[1,][0].member(0), first.trained.member(1))
    assert found[0,][1][0] == pytest.approx(recipe_measures.costs(longer.folder)[0])
    (first.folder / "checkpoint.safetensors").rename(first.folder / "checkpoint-0003.safetensors")
    assert [model.config.seeds for model, _ in until_passed(first)] == [*found]  # nor does an attempt's folder matter


def test_a_check_has_failed_where_scores_are_further_apart_than_the_threshold(tmp_path: Path) -> None:
    run = trained(tmp_path, replace(recipe_runs(False)["algorithm-2-midpoint"], seeds=SEEDS, iterations=50))
    reviews = {row["seed"]: abs(row["trained"] - row["checked"]) for row in read_metrics(tmp_path) if "before" in row}
    for threshold in (1e-9, 0.1, 1.0):
        strict = replace(
            run.trained.config, controller=wm.StepAdaptation(train="midpoint", check="rk4", threshold=threshold)
        )
        failed = {seed for seed, gap in reviews.items() if gap > threshold}
        assert recipe_measures._failed(tmp_path, strict) == failed


def trained(path: Path, config: RunConfig) -> Finished:
    sets = data.load("sphere2", seed=0)
    with open_run(path, config) as run:
        train(config, sets.train, sets.test, run)
    return Finished("algorithm-2-midpoint", trained_ensemble(path), sets.test, path)


def assert_same_model(one: nn.Module, other: nn.Module) -> None:
    """But for rounding, in which seeds in other company differ."""
    for (name, own), (_, its) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.allclose(own, its, rtol=1e-4, atol=1e-6), name


def rows_of(recipe: str, outcomes: str, **values: Any) -> Iterator[RecipeRow]:
    """A row for each letter: F, T or U."""
    words = {"F": "FLOW", "T": "TIED", "U": "UNDECIDED"}
    known = {"method": "euler", "iterations": 10, "cost": 8.0, "accuracy": 0.95, "flow_accuracy": 0.95, **values}
    for seed, letter in enumerate(outcomes):
        yield RecipeRow(run=recipe, recipe=recipe, seed=seed, outcome=words[letter], **known)


def test_findings_count_outcomes_with_wilsons_interval_and_name_what_reaches_the_goal() -> None:
    rows = [
        *rows_of("random-4-finish-0.2", "FFFFF"),
        *rows_of("random-4", "FFTTU"),
        *rows_of("steady-midpoint", "FFFFF", cost=35.0),
        *rows_of("coarse-3-to-48", "FFFFF", flow_accuracy=0.8),
    ]
    first, second, *_, goal = findings(Tables({RECIPES: rows}))
    assert "of 5 seeds 5 FLOW (share of FLOW 0.57 to 1.00)" in first.ours
    assert "of 5 seeds 2 FLOW, 2 TIED, 1 UNDECIDED" in second.ours
    assert goal.ours == "These do: random-4-finish-0.2 (8.0)"


def test_drawn_steps_are_compared_with_as_many_constant_ones_of_the_same_seeds() -> None:
    rows = [
        *rows_of("random-4", "FFFFF", flow_accuracy=0.94),
        *rows_of("constant-midpoint-4", "TTTTTF", flow_accuracy=0.75),
        *rows_of("random-6", "FFFFF"),
        *rows_of("random-4-finish-0.2", "FFFFF"),
    ]
    (told,) = [found for found in findings(Tables({RECIPES: rows})) if "drawn for each batch" in found.claim]
    assert told.case == "random-4"
    assert told.ours.startswith("5 of 5 seeds are FLOW against 0 (Fisher's exact test, p = 0.008)")
    assert "they lose 0.010 of their accuracy against 0.200 (paired t-test, p < 0.001)" in told.ours


def test_drawn_steps_that_share_no_seed_with_constant_ones_or_diverged_are_in_no_mean() -> None:
    apart = [*rows_of("random-4", "F"), *list(rows_of("constant-midpoint-4", "TT"))[1:]]
    assert not [found for found in findings(Tables({RECIPES: apart})) if "drawn for each batch" in found.claim]
    lost = {"accuracy": None, "flow_accuracy": None, "diverged_at": 3}
    rows = [*rows_of("random-4", "FF", flow_accuracy=0.94), *list(rows_of("random-4", "UUU", **lost))[2:]]
    rows += rows_of("constant-midpoint-4", "TTT", flow_accuracy=0.75)
    (told,) = [found for found in findings(Tables({RECIPES: rows})) if "drawn for each batch" in found.claim]
    assert told.ours.startswith("2 of 3 seeds are FLOW against 0")
    assert "they lose 0.010 of their accuracy against 0.200" in told.ours


def test_laws_are_judged_on_constant_steps_alone_and_undecided_ones_are_left_out() -> None:
    tied = rows_of("constant-euler-2", "TTTTTU", leading_term=0.5, step_bound=1.0, safe_share=0.2)
    flows = rows_of("constant-rk4-8", "FFFFF", leading_term=0.1, step_bound=1.0, safe_share=1.0, method="rk4")
    other = rows_of("random-4", "TTTTT", leading_term=0.0, step_bound=0.0, safe_share=1.0)
    rows = [*tied, *flows, *other]
    told = {found.case: found.ours for found in findings(Tables({RECIPES: rows})) if "ROC" in found.claim}
    assert told["leading_term"].startswith("all methods 1.00 (1.00 to 1.00); 10 models")


def test_a_threshold_of_one_method_is_tried_on_the_others() -> None:
    euler = [
        *rows_of("constant-euler-2", "TT", leading_term=0.5),
        *rows_of("constant-euler-128", "FF", leading_term=0.1),
    ]
    other = rows_of("constant-rk4-1", "TTTF", leading_term=0.2, method="rk4")
    told = {found.case: found.ours for found in findings(Tables({RECIPES: [*euler, *other]})) if "ROC" in found.claim}
    assert "a threshold of 0.3, chosen on Euler's models, is right on 1 of 4 others" in told["leading_term"]


def test_laws_are_large_where_a_model_should_be_tied() -> None:
    rows = [*rows_of("constant-euler-2", "TF", step_bound=1.0, safe_share=0.2)]
    told = {found.case: found.ours for found in findings(Tables({RECIPES: rows})) if "ROC" in found.claim}
    assert told["step_bound"].startswith("all methods 0.50")
    assert [law_of(row, "unsafe_share") for row in rows] == [0.8, 0.8]


# ---------------------------------------------------------------------------------------------------------
# What being tied costs


def test_an_input_is_lost_where_another_is_nearer_and_astray_where_it_is_too_far_off() -> None:
    inputs = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = inputs + torch.tensor([[0.0, 0.01], [0.0, 0.4], [0.9, 0.0], [torch.inf, 0.0]])
    assert (lost_share(inputs, found), strayed_share(inputs, found, 0.05)) == (0.5, 0.75)
    assert (lost_share(inputs, found), strayed_share(inputs, found, 0.5)) == (0.5, 0.5)
    assert (lost_share(inputs, inputs), strayed_share(inputs, inputs, 0.05)) == (0.0, 0.0)
    images, others = (each.reshape(4, 1, 1, 2) for each in (inputs, found))
    assert (lost_share(images, others), strayed_share(images, others, 0.05)) == (0.5, 0.75)


def test_what_is_as_sure_as_it_is_right_is_calibrated() -> None:
    sure = torch.tensor([[0.0, 20.0]] * 4)
    assert calibration_error(sure, torch.tensor([1, 1, 1, 1])) == pytest.approx(0.0, abs=1e-6)
    assert calibration_error(sure, torch.tensor([1, 1, 0, 0])) == pytest.approx(0.5, abs=1e-6)
    assert calibration_error(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])) == pytest.approx(0.0, abs=1e-6)


def test_an_attack_goes_as_far_as_it_may_and_to_the_wrong_side() -> None:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 0.5], [1.0, -0.5]]))  # class 1 where x is large and y small
    x = torch.tensor([[0.3, 0.0], [-0.3, 0.0]])
    found = attacked(model, x, torch.tensor([1, 0]), 0.1, 20)
    assert torch.allclose(found, torch.tensor([[0.2, 0.1], [-0.2, -0.1]]))


def test_noise_and_attacks_are_made_where_the_inputs_are() -> None:
    """On a GPU too; a device without memory stands for it."""
    x, y = torch.zeros(4, 2, device="meta"), torch.zeros(4, dtype=torch.long, device="meta")
    made = [*with_noise(x, 0.1, 2), attacked(nn.Linear(2, 2, device="meta"), x, y, 0.1, 2)]
    assert {inputs.device.type for inputs in made} == {"meta"}


def tied_row(run: str, seed: int, **values: float) -> TiedRow:
    outcome = "FLOW" if run.endswith("128") else "TIED"
    known: dict[str, Any] = {**dict.fromkeys(MEASURES, 0.5), "accuracy": 0.98, **values}
    return TiedRow(run=run, seed=seed, iterations=10, outcome=outcome, flow_accuracy=0.9, **known)


def tied_told(rows: list[TiedRow]) -> tuple[Finding, dict[str, str]]:
    first, *rest = TIED_STUDY.findings(Tables({TIED: rows}))
    return first, {found.claim.removesuffix(".").lower(): found.ours for found in rest}


def test_a_measure_differs_where_all_pairs_of_ten_seeds_do() -> None:
    tied = [tied_row("constant-euler-2", seed, lost=0.9, loss=0.5 + (-1) ** seed * 0.1) for seed in range(10)]
    flows = [tied_row("constant-euler-128", seed) for seed in range(10)]
    first, told = tied_told([*tied, *flows])
    assert first.ours.startswith("10 of 10 seeds have accuracies within 0.02")
    assert told[WORDS["lost"].lower()].startswith("0.9 against 0.5 (10 pairs")
    assert told[WORDS["lost"].lower()].endswith("differs")
    assert told[WORDS["loss"].lower()].endswith("nothing shows")


def test_seeds_of_other_accuracy_are_not_compared() -> None:
    tied = [tied_row("constant-euler-2", seed, accuracy=0.98 - 0.01 * seed) for seed in range(10)]
    flows = [tied_row("constant-euler-128", seed) for seed in range(9)]
    assert tied_told([*tied, *flows])[0].ours.startswith("3 of 9 seeds")


def test_every_measure_has_words() -> None:
    assert WORDS.keys() == set(MEASURES)


def test_words_tell_how_much_noise_there_was_on_which_data() -> None:
    assert words("sphere2")["noise_5"] == "accuracy, noise of 0.05"
    assert words("mnist-patches")["noise_5"] == "accuracy, noise of 0.3"
    assert words("mnist-patches")["lost"] == words("sphere2")["lost"]


def test_figures_are_drawn_of_few_seeds_and_of_runs_that_lack_some_measure(tmp_path: Path) -> None:
    rows = [*rows_of("constant-euler-2", "TU", leading_term=0.0, step_bound=1.0), *rows_of("random-4", "F")]
    assert {path.name for path in RECIPE_STUDY.draw(Tables({RECIPES: rows}), tmp_path)} == {
        "recipes.png",
        "laws.png",
    }
    tied = TiedRow(run="constant-euler-2", seed=0, iterations=10, accuracy=0.5, lost=1.0)
    assert len(TIED_STUDY.draw(Tables({TIED: [tied]}), tmp_path)) == 1
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())
