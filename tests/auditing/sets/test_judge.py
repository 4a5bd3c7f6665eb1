"""Audits of samplers: the verdict is by sets, against exact velocities."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import windermere as wm
from windermere.errors import UsageError

MEANS, WIDTH = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]]), 0.2


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


NOISE = torch.randn(600, 2, generator=generator(0))
REAL = MEANS[torch.randint(3, (600,), generator=generator(1))] + WIDTH * torch.randn(600, 2, generator=generator(2))


def velocity(x: Tensor, t: Tensor) -> Tensor:
    """What flow matching learns of three normal distributions, exactly."""
    variance = (1 - t) ** 2 + (t * WIDTH) ** 2
    away = x[:, None] - t * MEANS.to(x)
    shares = torch.softmax(-away.square().sum(dim=2) / (2 * variance), dim=1)
    drift = MEANS.to(x) + (t * WIDTH**2 - (1 - t)) / variance * away
    rate: Tensor = (shares[:, :, None] * drift).sum(dim=1)
    return rate


def sampler(steps: int) -> wm.Sampler:
    return wm.Sampler(velocity, wm.FixedStep("euler", step=1 / steps), order="xt")


def test_another_method_is_advised_by_its_score_since_single_samples_may_differ() -> None:
    verdict = wm.audit(sampler(2), NOISE, data=REAL, evidence=False)
    assert "it scores as the flow does" in verdict.recommendation
    assert "agrees" not in verdict.recommendation


@pytest.mark.parametrize(("steps", "outcome"), [(1, "COARSE"), (2, "COARSE"), (32, "FLOW")])
def test_more_steps_of_flow_matching_are_simply_better(steps: int, outcome: str) -> None:
    verdict = wm.audit(sampler(steps), NOISE, data=REAL, evidence=False)
    assert verdict.outcome == outcome, verdict
    assert verdict.metric == "energy distance"
    assert "the verdict looks at these" not in str(verdict)
    assert "600 generated samples are compared with 600 real ones" in " ".join(verdict.notes)


def test_however_coarse_a_sampler_is_its_audit_finds_the_same_number_of_steps() -> None:
    coarse, fine = (wm.audit(sampler(steps), NOISE, data=REAL, evidence=False) for steps in (1, 16))
    assert coarse.safe_step == fine.safe_step == 1 / 8
    assert {line.method for line in coarse.table if line.evaluations == 128} == {"euler", "midpoint"}


def test_a_sampler_that_was_made_for_one_step_is_tied_to_it() -> None:
    """One step of Euler leaves a tenth of the noise, as the data are; its flow leaves 0.41."""
    made = wm.Sampler(lambda x, t: -0.9 * x, wm.FixedStep("euler", step=1.0))
    real = 0.1 * torch.randn(600, 2, generator=generator(3))
    verdict = wm.audit(made, NOISE, data=real, evidence=False)
    assert verdict.outcome == "TIED", verdict


def test_samples_may_all_move_where_their_set_stays() -> None:
    """A turn by 1 is two of Euler's: nothing of it shows in a set that is round."""
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    made = wm.Sampler(lambda x, t: x @ turn.to(x), wm.FixedStep("midpoint", step=1 / 4))
    verdict = wm.audit(made, NOISE, data=torch.randn(600, 2, generator=generator(4)), evidence=False)
    assert verdict.outcome == "FLOW"
    assert verdict.agreement is not None
    assert verdict.agreement < 0.9


def test_batches_of_noise_are_one_set() -> None:
    whole = wm.audit(sampler(2), NOISE, data=REAL, evidence=False)
    parts = wm.audit(sampler(2), [(NOISE[:250], None), (NOISE[250:], None)], data=REAL, samples=None, evidence=False)
    assert parts.samples == whole.samples == 600
    assert parts.own.metric == pytest.approx(whole.own.metric, rel=1e-4)
    assert parts.threshold == pytest.approx(whole.threshold)


def test_conditions_by_sample_are_cut_with_the_noise() -> None:
    made = wm.Sampler(lambda x, t, shift: shift - 0 * x, wm.FixedStep("euler", step=1 / 4), order="xt")
    given = {"noise": NOISE, "shift": torch.randn(600, 2, generator=generator(5))}
    verdict = wm.audit(made, given, data=2**0.5 * NOISE.flip(0), samples=300, evidence=False)
    assert (verdict.outcome, verdict.samples) == ("FLOW", 300)


def test_the_distance_and_the_threshold_can_be_chosen() -> None:
    chosen = wm.SetDistance("mmd", name="my")
    verdict = wm.audit(sampler(2), NOISE, data=REAL.numpy(), metric=chosen, threshold=10.0, evidence=False)
    assert (verdict.outcome, verdict.metric, verdict.threshold) == ("FLOW", "my distance", 10.0)
    assert wm.audit(sampler(2), NOISE, data=np.asarray(REAL), metric="mmd", evidence=False).outcome == "COARSE"


def test_a_verdict_about_sets_comes_back_from_json() -> None:
    verdict = wm.audit(sampler(2), NOISE, data=REAL, evidence=False)
    assert wm.Verdict.from_dict(verdict.to_dict()).sentence == verdict.sentence


def test_data_without_any_noise_of_their_own_are_compared_all_the_same() -> None:
    """The smallest difference counts then, and no step of the own method is near enough."""
    made = wm.Sampler(lambda x, t: -20.0 * x, wm.FixedStep("euler", step=1 / 32))
    verdict = wm.audit(made, NOISE, data=torch.zeros(50, 2), evidence=False)
    assert verdict.threshold == 0
    assert verdict.outcome != "FLOW"


@pytest.mark.parametrize(
    ("batches", "options", "words"),
    [
        (NOISE, {"metric": wm.SetDistance()}, "give these as data="),
        (NOISE, {"data": REAL, "metric": len}, "judged by a distance of sets"),
        (NOISE, {"data": REAL, "outputs": "classes"}, "leave it out"),
        ((NOISE, NOISE[:, 0]), {"data": REAL}, "has no labels"),
        (NOISE, {"data": REAL[:, :1]}, "same shape"),
    ],
)
def test_what_cannot_be_asked_of_a_sampler_is_refused(batches: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wm.audit(sampler(2), batches, **options)
