"""What a verdict says and advises follows from its numbers."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, gap_of, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.auditing import Candidate, Outcome
from windermere.auditing.statistics import Gap
from windermere.auditing.table import TITLES, reading


def rotating(steps: int) -> nn.Sequential:
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=steps)), right_of_zero())


def test_where_finer_solvers_are_better_and_none_is_worse_the_solver_is_too_coarse() -> None:
    labels = labelled_by_itself(rotating(4096), ring())
    verdict = wm.audit(rotating(2), (ring(), labels), candidates=[Candidate("rk4", 1.0)], evidence=False)
    assert verdict.outcome is Outcome.COARSE
    assert gap_of(verdict).high < -0.1
    assert verdict.sentence.startswith("COARSE: the field is fine, its solver too coarse: accuracy 0.6")
    assert verdict.recommendation.startswith(
        f"More steps are simply better: at test time use {verdict.safe.solver} or finer."
    )


def test_where_the_flow_is_better_but_a_solver_as_accurate_is_worse_the_advice_is_still_a_finer_one() -> None:
    labels = labelled_by_itself(rotating(4096), ring())
    verdict = wm.audit(rotating(2), (ring(), labels), evidence=False)
    assert verdict.outcome is Outcome.TIED
    assert gap_of(verdict).high < -0.1
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
    assert 'wm.Metric(function, better="higher") or "lower" says which' in verdict.recommendation


def test_without_a_safe_precision_the_advice_says_what_was_tried_and_whether_finer_is_closer() -> None:
    verdict = rotation_verdict(2, threshold=0.9, agreement=1.0, evidence=False)
    assert (verdict.outcome, verdict.safe_step) == (Outcome.FLOW, None)
    finest = verdict.safe.ladder[0][1]
    assert verdict.agreement is not None
    assert finest > verdict.agreement
    assert verdict.recommendation == (
        "The same score, but other predictions: not even euler, h = 1/16 agrees with the flow on 100.0% of the samples "
        f"({verdict.agreement:.1%} with its own, {finest:.1%} there). Keep its own solver or a finer one: finer is "
        "closer. Or use rk4, h = 1/4: it agrees with the flow, in 16 evaluations."
    )


def test_a_flow_has_the_same_score_to_within_the_threshold_and_names_its_largest_gap() -> None:
    verdict = rotation_verdict(64, evidence=False)
    gaps = {line.solver: line.gap for line in verdict.table if line.counts} | {"the flow itself": verdict.gap}
    widest = max(abs(gap.value) for gap in gaps.values() if gap is not None)
    said = re.fullmatch(
        r"FLOW: the same score to within 0\.1 with every solver at least as accurate as its own \(euler, h = 1/64\), "
        r"and under the flow itself; the largest gap is (0\.\d{3}), to (.*)\.",
        verdict.sentence,
    )
    assert said is not None
    assert said[1] == f"{widest:.3f}"
    named = gaps[said[2]]
    assert named is not None
    assert abs(named.value) == widest


def test_a_tied_models_gap_is_named_with_the_solver_that_it_is_to() -> None:
    verdict = rotation_verdict(2, evidence=False)
    said = re.search(r"; the gap to (.*), whose error is no larger, is (0\.\d{3}), more than 0\.1\.$", verdict.sentence)
    assert said is not None
    assert verdict.sentence.startswith(
        "TIED to its solver: accuracy 1.000 with euler, h = 1/2, 0.670 under the flow of"
    )
    (line,) = (line for line in verdict.table if line.solver == said[1])
    assert line.counts
    assert line.gap is not None
    assert said[2] == f"{line.gap.value:.3f}"
    assert said[2] != "0.330", "which is the gap to the flow"
    assert "; the gap to the flow is +0.330 (95%: " in verdict.facts()[0]


def test_a_tied_models_largest_gap_may_be_that_to_the_flow_itself() -> None:
    verdict = rotation_verdict(2, candidates=[Candidate("euler", 1.0)], threshold=0.25, evidence=False)
    assert verdict.sentence.endswith("; the gap to the flow itself is 0.330, more than 0.25.")


def test_an_undecided_gap_is_named_with_both_its_solvers() -> None:
    verdict = rotation_verdict(4, threshold=0.22, samples=30, evidence=False)
    assert re.search(
        r"the gap of \+0\.\d{3} between its own solver \(euler, h = 1/4\) and .* on 30 samples", verdict.sentence
    )


def test_the_same_score_with_other_predictions_is_told_as_just_that() -> None:
    """Labels at random: whatever the solver, half of them are right."""
    model = rotating(8)
    labels = (torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.5).long()
    verdict = wm.audit(model, (ring(), labels), evidence=False, agreement=0.9999)
    assert verdict.outcome is Outcome.FLOW
    assert verdict.agreement is not None
    assert verdict.agreement < 0.99
    assert verdict.recommendation.startswith("The same score, but other predictions: ")
    assert f"{verdict.agreement:.1%}" in verdict.recommendation
    assert "included" not in verdict.recommendation


def test_a_finer_step_is_advised_where_each_prediction_matters() -> None:
    verdict = rotation_verdict(8, candidates=[Candidate("rk4", 1.0)], evidence=False)
    assert verdict.outcome is Outcome.FLOW
    assert verdict.safe_step == 1 / 16
    assert verdict.agreement is not None
    assert verdict.recommendation.startswith(
        f"The same score, but other predictions: its own solver agrees with the flow on {verdict.agreement:.1%} of the "
        f"samples. Where each of them matters, use {verdict.safe.solver} or finer at test time (99.0% or more)."
    )


@pytest.mark.parametrize(
    ("share", "told"), [(0.5, "But accuracy 0.5"), (0.1, "But accuracy 0.1"), (0.9, None), (1.0, None)]
)
def test_a_flow_whose_accuracy_is_no_better_than_chance_is_told_to_say_little(share: float, told: str | None) -> None:
    """Half the labels are of either class, and the model gets a share of them right."""
    model = rotating(256)
    right = torch.arange(400) % 10 < 10 * share
    own = labelled_by_itself(model, ring())
    verdict = wm.audit(model, (ring(), torch.where(right, own, 1 - own)), evidence=False)
    assert verdict.outcome is Outcome.FLOW
    if told is None:
        assert "chance" not in str(verdict)
    else:
        assert told in verdict.sentence
        assert verdict.sentence.endswith("so that this says little.")
        assert "is no better than chance (the most frequent class alone makes 0.5" in verdict.sentence


def test_an_untrained_model_of_ten_classes_is_a_flow_and_near_chance() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(wm.ODEBlock(Rotation(0.1), wm.FixedStep.of("euler", steps=16)), nn.Linear(2, 10))
    verdict = wm.audit(model, (torch.randn(1000, 2), torch.randint(10, (1000,))), evidence=False)
    assert verdict.outcome is Outcome.FLOW
    assert "is no better than chance" in verdict.sentence


def test_a_metric_of_ones_own_has_no_chance_to_compare_with() -> None:
    verdict = rotation_verdict(256, metric=lambda outputs, labels: outputs[:, 0], threshold=0.5, evidence=False)
    assert verdict.outcome is Outcome.FLOW
    assert "chance" not in str(verdict)


def test_small_scores_and_thresholds_are_shown_in_the_digits_that_they_need() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=256)))
    with torch.no_grad():
        x, y = 1e-3 * ring(), model(1e-3 * ring()) + 1e-5

    def closeness(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).abs().mean(dim=1)

    verdict = wm.audit(model, (x, y), metric=closeness, threshold=0.000123927, evidence=False)
    assert verdict.outcome is Outcome.FLOW
    assert "0.000 " not in str(verdict)
    assert "closeness: 1e-05 with its own solver" in str(verdict)
    assert "to within 0.000124 with" in verdict.sentence
    table = str(verdict).split("\n\n")[2]
    assert len({row.split()[-5] for row in table.splitlines()[1:-2]}) > 5, "scores can be told apart"


def test_json_has_the_safe_step_and_its_solver() -> None:
    values = rotation_verdict(256, evidence=False).to_dict()
    assert (values["safe_step"], values["safe_solver"]) == (1 / 32, "euler, h = 1/32")


def test_a_gap_that_happens_to_equal_the_threshold_needs_many_more_samples_not_infinitely_many() -> None:
    few = rotation_verdict(4, samples=30, evidence=False)
    verdict = rotation_verdict(4, samples=30, evidence=False, threshold=abs(gap_of(few).value))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "; many more samples would settle it." in verdict.sentence


def test_how_many_more_samples_are_needed_is_told_to_two_digits() -> None:
    few = rotation_verdict(4, samples=30, evidence=False)
    verdict = rotation_verdict(4, samples=30, evidence=False, threshold=0.9 * abs(gap_of(few).value))
    assert verdict.outcome is Outcome.UNDECIDED
    more = verdict.sentence.split("; about ")[1].split(" more samples")[0].replace(",", "")
    assert len(more) > 2
    assert set(more[2:]) == {"0"}


def test_an_undecided_gap_has_the_sign_of_its_interval() -> None:
    labels = labelled_by_itself(rotating(4096), ring())
    verdict = wm.audit(rotating(4), (ring(), labels), samples=30, threshold=0.22, evidence=False)
    assert verdict.outcome is Outcome.UNDECIDED
    assert gap_of(verdict).value < 0
    assert "the gap of -0." in verdict.sentence


def test_one_sample_of_a_regression_asks_for_more() -> None:
    verdict = rotation_verdict(2, samples=1, metric=lambda outputs, labels: outputs[:, 0], threshold=0.1)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.sentence.endswith("; more samples would settle it.")
    assert Gap(value=0.3, low=-float("inf"), high=float("inf"), samples=1).more_samples(0.1) == float("inf")


def test_a_metric_without_a_name_is_called_the_metric() -> None:
    verdict = rotation_verdict(2, metric=lambda outputs, labels: outputs[:, 0], threshold=0.01, evidence=False)
    assert verdict.metric == "the metric"
    assert "lambda" not in str(verdict)


@pytest.mark.usefixtures("coarse_pictures")
def test_a_verdict_survives_pickling_and_draws_the_same_figure(tmp_path: Path) -> None:
    verdict = rotation_verdict(2)
    again = pickle.loads(pickle.dumps(verdict))  # noqa: S301
    assert again == verdict
    for each, name in ((verdict, "one.png"), (again, "two.png")):
        each.plot(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.usefixtures("coarse_pictures")
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
    assert " on 1 sample could be " in rotation_verdict(4, samples=1, evidence=False).sentence


def test_the_table_is_aligned_however_long_the_names_of_its_solvers() -> None:
    solver = wm.OnGrid("rk4_38", tuple(i / 100 for i in range(101)))
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), solver), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    title, *rows = str(verdict).split("\n\n")[2].splitlines()[:-2]
    assert max(len(line.solver) for line in verdict.table) > 24
    assert {len(row) for row in rows} == {len(title)}
    marked = [row.split(" *")[0].strip().removesuffix(" (own)") for row in rows if "*" in row]
    assert marked == [line.solver for line in verdict.table if line.counts]
    assert [row.split(" (own)")[0] for row in rows if "(own)" in row] == [verdict.own.solver]
    assert rows[-1].startswith("the flow itself ")
    assert "as own, as flow: the share of samples" in str(verdict)


def closeness(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(outputs[:, 0] - targets).abs()


def evidence_of(verdict: wm.Verdict) -> dict[str, str]:
    return {piece.name: piece.finding for piece in verdict.evidence}


@pytest.mark.usefixtures("coarse_pictures")
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


@pytest.mark.usefixtures("coarse_pictures")
def test_more_classes_than_colours_are_counted_and_drawn_alike(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=4)), nn.Linear(2, 40)).double()
    verdict = wm.audit(model, (torch.randn(200, 2).double(), torch.arange(200) % 40), threshold=0.5)
    crossings = next(piece for piece in verdict.evidence if piece.name == "crossings")
    assert crossings.numbers["own"]["between_classes"] > 0
    assert "margins" in evidence_of(verdict)
    verdict.plot(tmp_path / "many.png")


def test_the_words_below_a_table_are_about_the_columns_that_it_has() -> None:
    whole = reading(TITLES)
    assert whole.startswith("as own, as flow: the share of samples that are judged as with its own solver, and")
    assert whole.endswith("evals: evaluations of the field")
    flow, error = "the share of samples that are judged as under the flow", "the distance from the flow, in the median"
    assert reading(["solver", "accuracy", "as flow", "error"]) == f"as flow: {flow}; error: {error}"
    assert reading(["solver", "accuracy"]) == ""
