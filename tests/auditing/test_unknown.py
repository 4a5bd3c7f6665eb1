"""What is not known is None: no number of a verdict stands for a flow that was not found."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from matplotlib.text import Text
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import Noisy, right_of_zero, ring, rotation_verdict
from tests.auditing.test_reference import Lorenz, attractor, audited
from windermere.auditing import Candidate, Outcome, Verdict
from windermere.auditing.reference import reference_flow
from windermere.auditing.subject import PredictSubject

OWN = wm.FixedStep.of("euler", steps=4)


def right(x: Tensor) -> Tensor:
    return (x[:, 1] > x[:, 0]).long()


def without_budget() -> Verdict:
    return rotation_verdict(2, budget=1)


def chaotic() -> Verdict:
    solver = wm.FixedStep("rk4", step=1 / 16)
    return audited(Lorenz(), solver, attractor(), (0.0, 30.0), evidence=False, budget=10_000)


def of_noise() -> Verdict:
    model = nn.Sequential(wm.ODEBlock(Noisy(3.0), OWN), right_of_zero())
    return wm.audit(model, (ring(), torch.zeros(400, dtype=torch.int64)))


def solver_passed_over() -> Verdict:
    return wm.audit(lambda x, solver: x, (ring(), right(ring())), trained_with=OWN)


def one_batch_of_two() -> Verdict:
    """The second batch has no flow: each refinement decides otherwise."""

    def predict(x: Tensor, solver: Any) -> Tensor:
        restless = bool(x[0, 0] < 0) and solver.method == "rk4" and round(1 / solver.step).bit_length() % 2
        return x * (-1 if restless else 1 + solver.step)

    x = ring()[ring()[:, 0].argsort(descending=True)]
    batches = [(part, right(part)) for part in x.chunk(2)]
    return wm.audit(predict, batches, trained_with=OWN, samples=None)


UNKNOWN = [without_budget, chaotic, of_noise, solver_passed_over, one_batch_of_two]


@pytest.mark.parametrize("made", UNKNOWN)
def test_without_a_flow_all_that_is_compared_with_it_is_none_and_the_own_score_is_known(made: Any) -> None:
    verdict = made()
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.own.metric is not None
    assert (verdict.gap, verdict.agreement, verdict.safe_step, verdict.safe.ladder) == (None, None, None, ())
    assert (verdict.reference.metric, verdict.reference.converged) == (None, False)
    for line in (verdict.own, *verdict.table):
        assert (line.error, line.agreement_reference, line.counts) == (None, None, False)
        assert line.metric is not None or line.failed is not None
    assert "margins" not in {piece.name for piece in verdict.evidence}


@pytest.mark.parametrize("made", UNKNOWN)
def test_without_a_flow_nothing_printed_or_kept_is_infinite_or_not_a_number(made: Any) -> None:
    verdict = made()
    values = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert {values[name] for name in ("gap", "agreement", "safe_step", "safe_solver")} == {None}
    words = str(verdict).replace(",", " ").replace(":", " ").split()
    assert not {"nan", "inf", "None", "+0.000"} & set(words)
    assert "not known under the flow" in str(verdict)


@pytest.mark.usefixtures("coarse_pictures")
@pytest.mark.parametrize("made", [without_budget, of_noise])
def test_without_a_flow_there_is_a_figure_that_says_so(made: Any, tmp_path: Path) -> None:
    figure = made().plot(tmp_path / "audit.png")
    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    assert texts.count("the flow is not known") == 1
    assert "the flow\nitself" not in texts
    assert (tmp_path / "audit.png").stat().st_size > 0


class Counted(Noisy):
    calls: ClassVar[list[float]] = []
    """Of all copies: an audit works on one."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        self.calls.append(float(t))
        return super().forward(t, z)


def test_noise_that_is_found_at_the_start_ends_the_audit_there() -> None:
    """One pass shows which solves there are, two the samples' axis, and two the noise, of which one is scored: there is
    no reference and no sweep."""
    field = Counted(3.0)
    model = nn.Sequential(wm.ODEBlock(field, OWN), right_of_zero())
    batches = [(ring(), torch.zeros(400, dtype=torch.int64))] * 3
    verdict = wm.audit(model, batches, samples=None)
    assert len(field.calls) == 5 * 4
    assert (verdict.evaluations, verdict.table, verdict.evidence) == (2, (), ())
    assert (verdict.samples, verdict.population) == (400, "the first batch")
    assert "noise" in verdict.sentence
    assert verdict.sentence == f"UNDECIDED: {verdict.reference.reason}."


# ---------------------------------------------------------------------------------------------------------
# What is not finite says so


def blown_up(factor: float) -> Any:
    """Fine solves are `factor` times what they should be."""

    def predict(x: Tensor, solver: Any) -> Tensor:
        scale: float = (1 + solver.step) * (factor if solver.method == "rk4" and solver.step < 1 / 8 else 1.0)
        return x * scale

    return predict


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (float("nan"), "its solutions are not finite for 400 of 400 samples, under rk4, h = 1/"),
        (float("inf"), "its solutions are not finite for 400 of 400 samples, under rk4, h = 1/"),
        (1e200, "its solutions are too large to be measured, under rk4, h = 1/"),
    ],
)
def test_a_reference_that_is_not_finite_is_called_that(factor: float, words: str) -> None:
    x = ring().double()
    verdict = wm.audit(blown_up(factor), (x, right(x)), trained_with=OWN)
    assert f"the reference flow did not converge: {words}" in verdict.sentence
    assert not any(word in verdict.sentence for word in ("rounding", "chaotic", "stiff"))
    assert verdict.reference.order is None
    assert " nan" not in str(verdict)


def test_a_reference_whose_scores_are_not_finite_is_not_called_rounding() -> None:
    def logged(outputs: Tensor, targets: Tensor) -> Tensor:
        """Of a negative number there is none."""
        return (outputs[:, 0] / targets - 1.01).log10()

    x = ring().abs().double() + 1
    verdict = wm.audit(
        lambda x, solver: x * (1 + solver.step), (x, x[:, 0]), trained_with=OWN, metric=logged, threshold=0.1
    )
    assert verdict.outcome is Outcome.UNDECIDED
    assert "the metric's scores are not finite for 400 of 400 samples, under rk4" in verdict.sentence
    assert "rounding" not in verdict.sentence


def test_one_refinement_that_is_not_finite_does_not_end_the_search() -> None:
    """As too coarse a step may blow up where a finer one does not."""

    def predict(x: Tensor, solver: Any) -> Tensor:
        return x * (torch.nan if solver.step == 1 / 32 else 1 + solver.step**4)

    subject, x = PredictSubject(predict, OWN), ring().double()
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    assert reference.converged
    assert reference.reason is None


def test_a_solver_whose_scores_are_not_finite_has_failed_and_stands_in_no_gap() -> None:
    def logged(outputs: Tensor, targets: Tensor) -> Tensor:
        return (1.45 - outputs[:, 0] / targets).log10()

    x = ring().abs().double() + 1
    verdict = wm.audit(
        lambda x, solver: x * (1 + solver.step**2),
        (x, x[:, 0]),
        trained_with=OWN,
        metric=logged,
        threshold=0.2,
        candidates=[Candidate("euler", 3.0), Candidate("euler", 1.0)],
    )
    (failed,) = (line for line in verdict.table if line.precision == 0.75)
    assert failed.failed == "the metric's scores are not finite for 400 of 400 samples"
    assert (failed.metric, failed.gap, failed.agreement_own) == (None, None, None)
    assert verdict.outcome is Outcome.FLOW


def test_the_figure_calls_no_solver_accurate_where_the_flow_is_not_known() -> None:
    words = " ".join(text.get_text() for text in without_budget().plot().findobj(Text))
    assert "the flow is not known" in words
    assert "accurate" not in words


class Guarded(nn.Module):
    """A field that takes no states beyond 2, to which only steps that are too coarse lead."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        if z.abs().max() > 2:
            raise ValueError("the state left its domain")
        return -8 * z


def test_what_a_field_raises_under_a_coarser_solver_fails_that_solver_alone() -> None:
    x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)) + 0.5
    verdict = wm.audit(wm.ODEBlock(Guarded(), wm.FixedStep("euler", step=1 / 16)), x)
    failed = {line.solver: line.failed for line in verdict.table if line.failed is not None}
    assert verdict.reference.converged
    assert failed == {"euler, h = 1/2": "ValueError: the state left its domain"}


def test_what_a_field_raises_under_every_finer_solver_is_why_nothing_is_known() -> None:
    class Counted(nn.Module):
        """Takes no more than a few steps of its own."""

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            if 0 < float(t) < 0.25:
                raise ValueError("this time is not in the table")
            return -z

    verdict = wm.audit(wm.ODEBlock(Counted(), OWN), ring())
    assert verdict.outcome == Outcome.UNDECIDED
    assert verdict.reference.reason == "ValueError: this time is not in the table"


@pytest.mark.parametrize("words", ["not enough memory: you tried to allocate", "CUDA error: device-side assert"])
def test_a_machine_that_gives_up_is_no_solver_that_fails(words: str) -> None:
    class Weary(nn.Module):
        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            if z.dtype == torch.float32 and 0 < float(t) < OWN.step:  # under finer steps of the table alone
                raise RuntimeError(words)
            return -z

    with pytest.raises(RuntimeError, match=words):
        wm.audit(wm.ODEBlock(Weary(), OWN), ring())
