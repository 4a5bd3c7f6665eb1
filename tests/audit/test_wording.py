"""What a verdict says and advises follows from its numbers."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.audit.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.audit import Outcome
from windermere.audit.statistics import Gap


def rotating(steps: int) -> nn.Sequential:
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=steps)), right_of_zero())


def test_where_the_flow_is_better_than_its_own_solver_the_advice_is_a_finer_one() -> None:
    labels = labelled_by_itself(rotating(4096), ring())
    verdict = wm.audit(rotating(2), (ring(), labels), evidence=False)
    assert verdict.outcome is Outcome.TIED
    assert verdict.gap.high < -0.1
    assert verdict.recommendation == (
        f"The flow of its field is better than its own solver: at test time use {verdict.safe.solver} or finer."
    )


def test_where_the_flow_is_worse_the_advice_is_its_own_solver() -> None:
    assert "Use it with its own solver only, or retrain" in rotation_verdict(2).recommendation


def test_a_metric_of_unknown_direction_gets_advice_for_both() -> None:
    def hits(outputs: Any, labels: Any) -> Any:
        return (outputs.argmax(dim=1) == labels).double()

    verdict = rotation_verdict(2, metric=hits, threshold=0.1, evidence=False)
    assert verdict.outcome is Outcome.TIED
    assert "where the flow's score is the better one" in verdict.recommendation


def test_without_a_safe_precision_the_advice_says_what_was_tried_and_whether_finer_is_closer() -> None:
    verdict = rotation_verdict(2, threshold=0.9, agreement=1.0, evidence=False)
    assert (verdict.outcome, verdict.safe_step) == (Outcome.FLOW, None)
    finest = verdict.safe.ladder[0][1]
    assert finest > verdict.agreement
    assert verdict.recommendation == (
        "Keep its own solver or a finer one: not even euler, h = 1/16 agrees with the flow on 100.0% of the "
        f"samples, but finer is closer ({verdict.agreement:.1%} with its own, {finest:.1%} there). "
        "Or use rk4, h = 1/4: it agrees with the flow, in 16 evaluations."
    )


def test_a_gap_that_happens_to_equal_the_threshold_needs_many_more_samples_not_infinitely_many() -> None:
    few = rotation_verdict(4, samples=30, evidence=False)
    verdict = rotation_verdict(4, samples=30, evidence=False, threshold=abs(few.gap.value))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "; many more samples would settle it." in verdict.sentence


def test_an_undecided_gap_has_the_sign_of_its_interval() -> None:
    labels = labelled_by_itself(rotating(4096), ring())
    verdict = wm.audit(rotating(4), (ring(), labels), samples=30, threshold=0.22, evidence=False)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.gap.value < 0
    assert "the gap of -0." in verdict.sentence


def test_one_sample_of_a_regression_asks_for_many_more() -> None:
    verdict = rotation_verdict(2, samples=1, metric=lambda outputs, labels: outputs[:, 0], threshold=0.1)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "many more samples" in verdict.sentence
    assert Gap(value=0.3, low=-float("inf"), high=float("inf"), samples=1).more_samples(0.1) == float("inf")


def test_a_metric_without_a_name_is_called_the_metric() -> None:
    verdict = rotation_verdict(2, metric=lambda outputs, labels: outputs[:, 0], threshold=0.01, evidence=False)
    assert verdict.metric == "the metric"
    assert "lambda" not in str(verdict)


def test_a_verdict_survives_pickling_and_draws_the_same_figure(tmp_path: Path) -> None:
    verdict = rotation_verdict(2)
    again = pickle.loads(pickle.dumps(verdict))  # noqa: S301
    assert again == verdict
    for each, name in ((verdict, "one.png"), (again, "two.png")):
        each.plot(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.parametrize("kind", [str, Path])
def test_a_figure_is_saved_at_a_path_of_either_kind(tmp_path: Path, kind: Any) -> None:
    rotation_verdict(2, evidence=False).plot(kind(tmp_path / "audit.png"))
    assert (tmp_path / "audit.png").stat().st_size > 0


def test_an_audit_leaves_gradients_and_parameters_as_they_were() -> None:
    model = rotating(2)
    before = [p.detach().clone() for p in model.parameters()]
    wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert all(torch.equal(p, q) and p.requires_grad for p, q in zip(model.parameters(), before, strict=True))


def test_one_sample_is_not_called_several() -> None:
    assert " on 1 sample is too close " in rotation_verdict(4, samples=1, evidence=False).sentence


def test_the_table_is_aligned_however_long_the_names_of_its_solvers() -> None:
    solver = wm.OnGrid("rk4_38", tuple(i / 100 for i in range(101)))
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), solver), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    title, *rows = str(verdict).split("\n\n")[2].splitlines()[:-1]
    assert max(len(line.solver) for line in verdict.table) > 24
    assert {len(row) for row in rows} == {len(title)}
    assert [row.split(" *")[0].strip() for row in rows if "*" in row] == [x.solver for x in verdict.table if x.counts]


def closeness(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(outputs[:, 0] - targets).abs()


def evidence_of(verdict: wm.Verdict) -> dict[str, str]:
    return {piece.name: piece.finding for piece in verdict.evidence}


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_has_no_classes_no_decisions_and_no_margins_to_them(outputs: int, tmp_path: Path) -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=8)), nn.Linear(2, outputs))
    verdict = wm.audit(model.double(), (ring(), ring()[:, 0] / 3), metric=closeness, threshold=0.1)
    found = evidence_of(verdict)
    assert "margins" not in found
    assert "crossings among" in found["crossings"]
    assert "class" not in found["crossings"]
    assert verdict.plane is not None
    assert verdict.plane.labels is None
    assert verdict.plane.decide is None
    verdict.plot(tmp_path / "regression.png")


def test_with_a_metric_of_ones_own_classes_are_still_classes() -> None:
    def hits(outputs: Any, labels: Any) -> Any:
        return (outputs.argmax(dim=1) == labels).double()

    own, usual = rotation_verdict(4, metric=hits, threshold=0.1), rotation_verdict(4)
    assert evidence_of(own) == evidence_of(usual)
    assert "margins" in evidence_of(own)


def test_more_classes_than_colours_are_counted_and_drawn_alike(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=4)), nn.Linear(2, 40)).double()
    verdict = wm.audit(model, (torch.randn(200, 2).double(), torch.arange(200) % 40), threshold=0.5)
    crossings = next(piece for piece in verdict.evidence if piece.name == "crossings")
    assert crossings.numbers["own"]["between_classes"] > 0
    assert "margins" in evidence_of(verdict)
    verdict.plot(tmp_path / "many.png")
