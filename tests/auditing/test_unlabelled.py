"""Without labels: decisions that change, outputs that move, and what they are relative to."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import windermere as wm
from tests.auditing.test_known_cases import Rotation, gap_of, right_of_zero, ring
from tests.auditing.test_regressions import Oscillator, Path31, sampled
from windermere.auditing import Outcome, Verdict
from windermere.errors import UsageError
from windermere.report.page import audit_page


def block(steps: int, method: str = "euler") -> wm.ODEBlock:
    return wm.ODEBlock(Rotation(3.0), wm.FixedStep.of(method, steps=steps))


@pytest.mark.parametrize("kind", ["x", "(x,)", "(x, None)", "loader", "data set", "dict", "batches", "numpy"])
def test_inputs_alone_in_any_form_give_the_same_verdict(kind: str) -> None:
    x = ring()
    given: Any = {
        "x": x,
        "(x,)": (x,),
        "(x, None)": (x, None),
        "loader": DataLoader(TensorDataset(x), batch_size=64),
        "data set": TensorDataset(x),
        "dict": {"z": x},
        "batches": iter([x[:100], x[100:]]),
        "numpy": x.numpy(),
    }[kind]
    verdict = wm.audit(block(4), given, evidence=False)
    assert verdict.outcome is Outcome.MOVED
    assert verdict.gap == wm.audit(block(4), x, evidence=False).gap
    assert "without labels nobody can say whether for better or worse" in verdict.sentence
    assert any("taken for numbers" in note for note in verdict.notes)


def test_movement_is_the_distance_over_the_spread() -> None:
    x = ring()
    verdict = wm.audit(block(4), x, evidence=False)
    with torch.no_grad():
        own = block(4)(x).double()
        flow = block(512, "rk4")(x).double()
    moved = (flow - own).square().sum(dim=1).mean().sqrt() / (own - own.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    assert gap_of(verdict).value == pytest.approx(float(moved), rel=1e-3)


def test_outputs_that_move_far_are_told_by_how_many_times_their_spread() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).double()
    growth = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    growth.weight.data = 8 * torch.eye(2, dtype=torch.float64)
    blown_up = wm.ODEBlock(wm.Autonomous(growth), wm.FixedStep("euler", step=1))
    verdict = wm.audit(blown_up, x, evidence=False)
    assert gap_of(verdict).value > 10
    assert f"move by {gap_of(verdict).value:,.0f} times their spread, more than 1%" in verdict.sentence


def test_the_step_at_which_it_would_be_one_percent_is_told() -> None:
    verdict = wm.audit(block(64), ring(), evidence=False)
    assert verdict.outcome is Outcome.MOVED
    said = verdict.recommendation.split("At about euler, h = ")[1].split(" outputs would move by 1%")[0]
    steps = round(1 / (1 / float(said[2:]) if said.startswith("1/") else float(said)))
    assert wm.audit(block(round(1.1 * steps)), ring(), evidence=False).outcome is Outcome.FLOW
    assert wm.audit(block(round(steps / 1.1)), ring(), evidence=False).outcome is Outcome.MOVED


def test_a_movement_on_the_way_counts_where_the_end_is_right() -> None:
    """Half a turn and back: at the end all solvers of a reversible field meet, on the way they do not."""

    class ThereAndBack(nn.Module):
        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return torch.cos(2 * torch.pi * t) * torch.stack([torch.ones_like(z[:, 0]), z[:, 1] * 0], dim=1)

    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).double()
    times = tuple(i / 4 for i in range(5))
    path = wm.ODEBlock(ThereAndBack(), wm.FixedStep("euler", step=1 / 4), times=times)
    end = wm.ODEBlock(ThereAndBack(), wm.FixedStep("euler", step=1 / 4))
    assert wm.audit(end, x, evidence=False).outcome is Outcome.FLOW
    assert wm.audit(path, x, evidence=False).outcome is Outcome.MOVED


@pytest.mark.parametrize(("steps", "outcome"), [(2, Outcome.MOVED), (64, Outcome.FLOW)])
def test_decisions_that_change_bound_the_gap_of_accuracies(steps: int, outcome: Outcome) -> None:
    model = nn.Sequential(block(steps), right_of_zero())
    verdict = wm.audit(model, ring(), outputs="classes", evidence=False)
    assert verdict.outcome is outcome
    assert verdict.metric == "changed decisions"
    labels = torch.randint(2, (400,), generator=torch.Generator().manual_seed(0))
    labelled = wm.audit(model, (ring(), labels), evidence=False)
    assert abs(gap_of(labelled).value) <= gap_of(verdict).value + 1e-12
    assert verdict.agreement == labelled.agreement
    assert verdict.safe_step == labelled.safe_step


def test_probabilities_are_taken_for_classes_and_the_verdict_says_so() -> None:
    model = nn.Sequential(block(64), right_of_zero(), nn.Softmax(dim=1))
    verdict = wm.audit(model, ring(), evidence=False)
    assert verdict.metric == "changed decisions"
    assert any("taken for scores of classes" in note for note in verdict.notes)
    assert wm.audit(model, ring(), outputs="numbers", evidence=False).metric == "movement"


def test_a_samplers_coordinates_do_not_become_logits_in_silence() -> None:
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    verdict = wm.audit(block(32), (x, torch.zeros(500, dtype=torch.int64)), evidence=False)
    assert "if they are no scores of classes, leave the labels out" in verdict.sentence


def test_an_audit_without_labels_costs_no_more_than_one_with() -> None:
    def cost(batch: Any, **how: Any) -> float:
        return wm.audit(nn.Sequential(block(16), right_of_zero()), batch, evidence=False, **how).evaluations

    labels = torch.zeros(400, dtype=torch.int64)
    assert cost(ring(), outputs="classes") <= cost((ring(), labels))
    assert cost(ring()) <= 1.2 * cost((ring(), labels))


def test_one_trajectory_without_targets_is_judged_by_its_own_spread_over_time() -> None:
    x, _ = sampled(0.0)

    def verdict(solver: Any) -> Verdict:
        return wm.audit(Path31(Oscillator(tied=False), solver), x[:1], evidence=False)

    assert verdict(wm.FixedStep("euler", step=0.1)).outcome is Outcome.MOVED
    assert verdict(wm.FixedStep("rk4", step=0.1)).outcome is Outcome.FLOW


def test_outputs_that_all_end_in_one_point_do_not_move_by_multiples_of_rounding() -> None:
    pull = nn.Linear(2, 2)
    with torch.no_grad():
        pull.weight.copy_(-32 * torch.eye(2))
        pull.bias.fill_(32.0)
    verdict = wm.audit(wm.ODEBlock(wm.Autonomous(pull), wm.FixedStep.of("rk4", steps=80)), ring(), evidence=False)
    assert verdict.outcome is Outcome.FLOW, verdict


def test_a_single_output_of_a_single_sample_is_undecided_in_a_sentence() -> None:
    verdict = wm.audit(block(4), ring()[:1], evidence=False)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "could be on either side of 1% (1 sample is too few for an interval)" in verdict.sentence


def test_too_few_samples_have_no_interval_in_words_or_on_a_page() -> None:
    verdict = wm.audit(block(4), ring()[:2], evidence=False)
    assert "(2 samples are too few for an interval)" in verdict.sentence
    assert "inf" not in str(verdict)
    page = audit_page([verdict.to_dict()])
    assert "too few samples for an interval; up to 1 point counts as the same" in page
    assert "(no interval)" in page


@pytest.mark.parametrize("samples", [1000, None])
def test_labels_of_some_batches_only_are_refused(samples: int | None) -> None:
    x = ring()
    with pytest.raises(UsageError, match="some batches have labels and others have none"):
        wm.audit(block(4), [(x, (x[:, 0] > 0).long()), (x, None)], samples=samples, evidence=False)


def test_a_metric_that_needs_labels_is_refused_without() -> None:
    for metric in ("accuracy", "mse"):
        with pytest.raises(UsageError, match="but there are none"):
            wm.audit(block(4), ring(), metric=metric)
    with pytest.raises(UsageError, match="give one below 1"):
        wm.audit(block(4), ring(), outputs="classes", threshold=1.0)


class Pulse(nn.Module):
    """A push so short that coarse steps meet it or pass it over, as it happens."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.sin(z) + (100.0 if 0.30 < float(t) < 0.32 else 0.0)


def test_no_precision_is_told_that_no_line_leads_to() -> None:
    block = wm.ODEBlock(Pulse(), wm.FixedStep("euler", step=1 / 16))
    verdict = wm.audit(block, torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), evidence=False)
    assert verdict.outcome is Outcome.MOVED
    assert "At about" not in verdict.recommendation


def test_where_there_is_no_interval_no_number_of_samples_is_told() -> None:
    block = wm.ODEBlock(Rotation(3.0), wm.FixedStep("euler", step=1 / 2))
    verdict = wm.audit(block, torch.ones(1, 2), evidence=False)
    assert verdict.sentence.endswith("(1 sample is too few for an interval); more samples would settle it.")
