"""Samplers of digits tuned through their few steps: what is trained, that a kill costs little, and what the findings
say. Digits are bars of a few kinds here, and all networks are tiny."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.processes import ROOT
from windermere.errors import RunError
from windermere.paper import data
from windermere.paper.data import DataSet, Split
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import SEEDS, Place
from windermere.paper.studies.tied_sampler import fitting, image_runs, images, measures, models, runs
from windermere.paper.studies.tied_sampler.fitting import Batches, Fit
from windermere.paper.studies.tied_sampler.image_findings import image_findings
from windermere.paper.studies.tied_sampler.image_runs import SMALL, WHOLE, image_settings
from windermere.paper.studies.tied_sampler.image_runs import image_runs as runs_of
from windermere.paper.studies.tied_sampler.images import AIM, OTHER_REWARD, PIXELS, RATIO, UNet
from windermere.paper.studies.tied_sampler.kept import DIGITS_KEPT, as_text, images_of
from windermere.paper.studies.tied_sampler.measures import ByReward
from windermere.paper.studies.tied_sampler.rewards import Reward
from windermere.paper.studies.tied_sampler.rows import DIGITS, OPINIONS, TUNED, DigitRow, OpinionRow, TunedRow
from windermere.paper.studies.tied_sampler.runs import MATCHING, Scale, carry_out
from windermere.paper.studies.tied_sampler.study import TIED_IMAGE_SAMPLER
from windermere.paper.studies.tied_sampler.text import numbers, opinions
from windermere.paper.studies.tied_sampler.tuning import tune
from windermere.solvers import FixedStep

TINY = Scale(
    matching=12,
    tuning=2,
    samples=20,
    real=30,
    audited=10,
    audited_real=20,
    drawn=(f"{SMALL}-unet-energy-euler-2",),
)
CACHES = (
    images.digits,
    images._read,
    models.matched_weights,
    measures.held_out,
    runs._flow_before,
    runs._flow_of_control,
)


def forget() -> None:
    """What a new process would not know."""
    for cached in CACHES:
        cached.cache_clear()


def bars(n: int) -> Split:
    """Images of a bar each, by its column."""
    labels = torch.arange(n) % 10
    inputs = torch.zeros(n, 1, 28, 28)
    for k, label in enumerate(labels.tolist()):
        inputs[k, 0, 4:24, 4 + 2 * label : 6 + 2 * label] = 1
    return Split(inputs, labels)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small = replace(images.KINDS[SMALL], width=4, features=3, matching=Batches(8, 2e-3), tuning=Batches(8, 1e-3))
    made = DataSet(name="mnist", train=bars(60), test=bars(40), classes=10)
    monkeypatch.setattr(data, "load", lambda name, **_: made)
    monkeypatch.setitem(images.KINDS, SMALL, small)
    monkeypatch.setattr(fitting, "KEPT_EVERY", 5)
    forget()
    yield
    forget()


# What is trained.


@pytest.mark.parametrize("side", [14, 28])
def test_a_velocity_is_an_image_of_each_sample_alone(side: int) -> None:
    torch.manual_seed(0)
    net, x = UNet(side, 4), torch.randn(3, 1, side, side)
    for block in net.modules():
        if isinstance(block, images.Residual):
            nn.init.normal_(block.last.weight, std=0.1)
    times = torch.tensor([0.1, 0.5, 0.9])
    together = net(times, x)
    assert together.shape == x.shape
    for k in range(3):
        torch.testing.assert_close(net(times[k], x[k : k + 1]), together[k : k + 1])
    assert not torch.allclose(net(torch.tensor(0.9), x[:1]), together[:1])


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize(("loss", "metric"), [("energy", "energy distance"), ("reward", "the metric")])
def test_audits_find_its_flow_in_float32(loss: str, metric: str) -> None:
    torch.manual_seed(0)
    test = measures.held_out(SMALL, 0, 10, 20)
    verdict = measures.audited(UNet(14, 4), FixedStep.of("euler", steps=1), test, loss, samples=10, real=20)
    assert verdict.reference.dtype == "float32"
    assert verdict.metric == metric


@pytest.mark.usefixtures("few_digits")
def test_digits_are_pooled_and_what_judges_them_has_the_same_scale() -> None:
    digits = images.digits(SMALL, Place())
    pooled, _ = images._read(14, "train")
    whole = data.load("mnist").train.inputs
    torch.testing.assert_close(pooled, whole.reshape(60, 1, 14, 2, 14, 2).mean(dim=(3, 5)) * 2 - 1)
    assert digits.shape == (1, 14, 14)
    for name, part in digits.parts.items():
        rows = part(pooled)
        assert float(torch.cdist(rows, rows).square().sum() / (60 * 59)) == pytest.approx(1, rel=1e-3), name
    parts = [part(pooled) for name, part in digits.parts.items() if name in (PIXELS, images.FEATURES)]
    assert torch.equal(digits.embed(pooled), torch.cat(parts, dim=1))
    assert digits.others().keys() == {PIXELS, images.OTHER}
    tests = digits.tests(40, torch.Generator().manual_seed(0))
    assert len({as_text(one) for one in tests}) == 10  # all of them, and none twice


@pytest.mark.usefixtures("few_digits")
def test_the_reward_is_the_log_probability_of_one_digit() -> None:
    digits, (images_seen, labels) = images.digits(SMALL, Place()), images._read(14, "test")
    classifier = images._classifier(SMALL, images.KINDS[SMALL], images.CLASSIFIERS, Place())
    lacking = digits.reward.shortfall(images_seen)
    torch.testing.assert_close((-lacking).exp(), classifier(images_seen).softmax(dim=1)[:, AIM])
    assert digits.reward.real == pytest.approx(float(lacking[labels == AIM].mean()))
    assert digits.reward.real < float(lacking[labels != AIM].min())
    assert not torch.equal(digits.other_rewards[OTHER_REWARD].shortfall(images_seen), lacking)
    assert digits.other_rewards[RATIO].real == 0


def test_samples_that_lack_less_than_real_ones_are_not_told_apart_by_their_ratio() -> None:
    own = torch.full((50,), 1e-4)
    for real, flow, tied in ((0.1, 3e-4, False), (0.1, 0.049, False), (0.1, 0.052, True), (0.0, 3e-4, True)):
        yardstick = ByReward(Reward(lambda samples: samples, real=real))
        assert (yardstick.excess(torch.full((50,), flow), own).low > 0) == tied
    ratio = ByReward(Reward(lambda samples: samples, real=0.1))
    own = torch.full((50,), 0.2)  # more than real ones lack, so that half of it is allowed
    assert [ratio.excess(times * own, own).low > 0 for times in (1.49, 1.51)] == [False, True]


def test_kept_images_are_the_same_to_a_shade() -> None:
    image = torch.linspace(-1.2, 1.2, 49).reshape(1, 7, 7)
    row = DigitRow(run="a", seed=0, stage="own", sample=0, side=7, pixels=as_text(image))
    (back,) = images_of([row])
    assert abs(torch.from_numpy(back) * 2 - 1 - image[0].clamp(-1, 1)).max() <= 1 / 255 + 1e-6


# A kill costs little.


def a_fit() -> Fit:
    torch.manual_seed(0)
    return Fit(nn.Linear(3, 2), Batches(4, 1e-2), seed=1, iterations=23)


class Killed(Exception):
    """In the place of a SIGKILL."""


def same_weights(one: Fit, other: Fit) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def loss_of(fit: Fit, until: int = 99) -> fitting.Loss:
    def loss(generator: torch.Generator) -> torch.Tensor:
        if fit.done == until:
            raise Killed
        result: torch.Tensor = fit.model(torch.randn(4, 3, generator=generator)).square().mean()
        return result

    return loss


@pytest.mark.parametrize("at", [0, 4, 5, 12, 20, 22])
def test_a_training_that_is_killed_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(fitting, "KEPT_EVERY", 5)
    whole, killed, again = a_fit(), a_fit(), a_fit()
    whole.run(loss_of(whole))
    with pytest.raises(Killed):
        killed.run(loss_of(killed, until=at), tmp_path / "kept.safetensors")
    again.run(loss_of(again), tmp_path / "kept.safetensors")
    assert again.done == 23
    assert same_weights(again, whole)
    once_more = a_fit()
    once_more.run(loss_of(once_more, until=0), tmp_path / "kept.safetensors")  # nothing is left to do
    assert same_weights(once_more, whole)


def test_a_training_takes_nothing_over_from_another(tmp_path: Path) -> None:
    fit, other = a_fit(), Fit(nn.Linear(3, 2), Batches(4, 2e-2), seed=1, iterations=23)
    fit.run(loss_of(fit), tmp_path / "kept.safetensors")
    with pytest.raises(RunError, match="was trained in another way"):
        other.run(loss_of(other), tmp_path / "kept.safetensors")


@pytest.mark.usefixtures("few_digits")
def test_a_run_whose_matching_was_cut_off_ends_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "audited", lambda *_: SimpleNamespace(outcome="FLOW"))  # which takes longer than the rest
    first, control = (next(image_settings(SMALL, (2,), ())), list(image_settings(SMALL, (2,), ()))[-1])
    whole = carry_out(first, TINY, 0)
    place, iterate, done = Place(folder=tmp_path), Fit.iterate, list[int]()

    def cut(fit: Fit, loss: torch.Tensor) -> None:
        done.append(fit.iterations)
        if done.count(TINY.matching) == 8:
            raise Killed
        iterate(fit, loss)

    forget()
    with monkeypatch.context() as patched:
        patched.setattr(Fit, "iterate", cut)
        with pytest.raises(Killed):
            carry_out(first, TINY, 0, place)
    forget()
    assert carry_out(first, TINY, 0, place) == whole
    (row,) = whole[TUNED]
    assert (row.data, row.loss, row.iterations, row.evaluations, row.steps) == (SMALL, "energy", 2, 2.0, 2)
    assert {opinion.yardstick for opinion in whole[OPINIONS]} == {PIXELS, images.OTHER}
    assert len(whole[DIGITS]) == 4 * DIGITS_KEPT
    goes_on = carry_out(control, TINY, 0, place)
    (longer,) = goes_on[TUNED]
    assert (longer.loss, longer.iterations, longer.evaluations) == (MATCHING, 8 * TINY.tuning, 1.0)
    assert (longer.own_before, longer.flow_before) == (row.own_before, row.flow_before)
    both = Tables({table: [*whole[table], *goes_on[table]] for table in TIED_IMAGE_SAMPLER.tables})
    figures = TIED_IMAGE_SAMPLER.draw(both, tmp_path)
    assert [path.name for path in figures] == ["tied-sampler-images.png", "tied-sampler-images-digits.png"]


@pytest.mark.usefixtures("few_digits")
def test_a_rewarded_run_has_rows_digits_and_figures_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "audited", lambda *_: SimpleNamespace(outcome="FLOW"))
    (rewarded,) = (one for one in image_settings(SMALL, (2,), ()) if one.loss == "reward")
    tables = carry_out(rewarded, replace(TINY, drawn=(rewarded.run,)), 0)
    (row,), test = tables[TUNED], measures.held_out(SMALL, 0, TINY.samples, TINY.real)
    before = measures.sampled(models.matched(SMALL, "unet", 0, TINY.matching), test, FixedStep.of("euler", steps=2))
    assert row.own_before == pytest.approx(float(test.data.reward.shortfall(before).mean()), rel=1e-4)
    assert {opinion.yardstick for opinion in tables[OPINIONS]} == {OTHER_REWARD, RATIO}
    (ratio,) = (opinion for opinion in tables[OPINIONS] if opinion.yardstick == RATIO)
    assert (ratio.own, ratio.flow, ratio.gap) == (row.own, row.flow, row.gap)
    assert len(tables[DIGITS]) == 4 * DIGITS_KEPT
    both = Tables({table: tables[table] for table in TIED_IMAGE_SAMPLER.tables})
    figures = TIED_IMAGE_SAMPLER.draw(both, tmp_path)
    assert [path.name for path in figures] == [
        "tied-sampler-images-reward.png",
        "tied-sampler-images-reward-digits.png",
    ]


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("name", image_runs.IMAGE_CONTROLLERS)
def test_a_controller_reviews_images(name: str) -> None:
    tuned = tune(UNet(14, 4), images.digits(SMALL, Place()), "energy", runs.CONTROLLERS[name], 0, runs.EVERY)
    assert runs.EVERY * tuned.evaluations > runs.EVERY * 4 * 2  # those of a check, too


# The study.


def test_the_small_runs_come_first_and_have_a_control_each() -> None:
    every = runs_of(False)
    small = [name for name in every if name.startswith(SMALL)]
    assert list(every)[: len(small)] == small
    for steps in image_runs.STEPS:
        for loss in ("energy", "reward", MATCHING):
            assert every[f"{SMALL}-unet-{loss}-euler-{steps}"].seeds == SEEDS
    assert all(every[name].seeds == SEEDS for name in every if name.startswith(WHOLE))
    for scale in image_runs.SCALES.values():
        assert {*scale.drawn} <= every.keys()


def test_without_the_data_nothing_is_left_behind(tmp_path: Path) -> None:
    def load(name: str, seed: int) -> tuple[Split, Split]:
        raise RunError(f"no {name} here")

    with pytest.raises(RunError, match="no mnist here"):
        run_study(TIED_IMAGE_SAMPLER, tmp_path / "out", Choice(quick=True), load=load)
    assert not (tmp_path / "out").exists()


def a_row(loss: str, steps: int, seed: int, **changes: float | bool | None) -> TunedRow:
    row = TunedRow(
        run=f"{SMALL}-unet-{loss}-euler-{steps}",
        seed=seed,
        data=SMALL,
        network="unet",
        loss=loss,
        through=f"euler-{steps}",
        method="euler",
        steps=steps,
        iterations=1,
        evaluations=steps,
        own_before=0.1,
        flow_before=0.01,
        own=0.02,
        flow=0.03,
        gap=0.01,
        gap_low=0.0,
        gap_high=0.02,
        excess_low=0.0,
        excess_high=0.02,
        harm=0.02,
        harm_low=0.0,
        harm_high=0.03,
        tied=False,
        harmed=False,
        audit="FLOW",
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def test_findings_tell_the_change_the_control_and_other_yardsticks() -> None:
    seeds = (0, 1, 2)
    rows = [a_row("energy", 2, seed, flow=0.03 + 0.001 * seed, tied=True, harmed=seed > 0) for seed in seeds]
    rows += [a_row(MATCHING, 2, seed, own=0.1, flow=0.008, gap=-0.09) for seed in seeds]
    fields = {name: getattr(rows[0], name) for name in OpinionRow.__dataclass_fields__ if name != "yardstick"}
    judged = [OpinionRow(**{**fields, "seed": seed, "tied": seed < 2}, yardstick="pixels") for seed in seeds]
    found = {finding.claim: finding.ours for finding in image_findings(Tables({TUNED: rows, OPINIONS: judged}))}
    told = list(found.values())
    assert told[0] == "3 of 3 with 2 (3 seeds); all are sure"
    assert told[2] == "2 steps: own 0.1 to 0.02, flow 0.01 to 0.031 (paired t-test, 3 seeds, p < 0.001)"
    assert told[3].startswith("0 of 3 tied, 0 harmed, flow 0.01 to 0.008 (paired t-test, 3 seeds, p < 0.001); tuned")
    assert "tuned through 2 steps, the flow's differs from that by +0.023" in told[3]
    assert told[4] == "2 of 3 with 2; harmed: 0 with 2"


def test_findings_of_rewards_are_told_apart_from_those_of_distances() -> None:
    rows = [a_row(loss, 2, seed, tied=loss == "reward") for loss in ("energy", "reward") for seed in (0, 1)]
    fields = {name: getattr(rows[2], name) for name in OpinionRow.__dataclass_fields__ if name != "yardstick"}
    judged = [OpinionRow(**{**fields, "seed": seed, "tied": seed < 1}, yardstick=OTHER_REWARD) for seed in (0, 1)]
    found = image_findings(Tables({TUNED: rows, OPINIONS: judged}))
    claims = [(finding.claim.split(" ")[0], finding.case.split(", ", 2)[2:]) for finding in found]
    assert claims == [
        *(("How", [loss]) if n == 0 else ("From", [loss]) for loss in ("energy", "reward") for n in (0, 1)),
        *(("What", []), ("What", ["reward"]), ("Who", [OTHER_REWARD])),
    ]
    assert found[-1].ours == "1 of 2 with 2; harmed: 0 with 2"


# The pages.


def committed() -> tuple[list[TunedRow], list[OpinionRow]]:
    folder = ROOT / "results/tied-sampler-images"
    if not TUNED.read(folder):
        pytest.skip("a source distribution of the package alone has no results")
    return TUNED.read(folder), OPINIONS.read(folder)


def test_the_committed_numbers_are_those_of_the_committed_tables() -> None:
    rows, judged = committed()
    text = (ROOT / "results/tied-sampler-images/numbers.md").read_text()
    assert text == "\n".join((numbers(rows), opinions(judged)))
