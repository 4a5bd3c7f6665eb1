"""The rules of an audit on a model whose every error and every decision is scripted, so that each can matter alone.

Shapes: samples x are [n, 2]: the sign of the first entry is the class, the second is the sample's rank in [0, 1).
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import gap_of
from windermere.auditing import Candidate, Outcome, Verdict
from windermere.auditing.candidates import STEP_FACTORS
from windermere.auditing.judges import Accuracy, MeanScores
from windermere.auditing.safe_step import STEP_LADDER, TOLERANCE_LADDER, Standard, ladder, safe_elsewhere
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Better, Gap
from windermere.auditing.subject import PredictSubject
from windermere.auditing.verdict import decide
from windermere.errors import NonFiniteError
from windermere.solvers import Adaptive, FixedStep, Solver

H = 1 / 32
OWN = FixedStep("euler", step=H)
Key: TypeAlias = tuple[str, float]
"""A method, and its step in units of the training solver's."""
ORDERS = {"euler": 1, "midpoint": 2, "rk4": 4}


def usual_error(method: str, factor: float) -> float:
    return float(0.1 ** ORDERS[method] * factor ** ORDERS[method])


def verdict_of(
    *,
    flips: Mapping[Key, float] | Callable[[str, float], float] | None = None,
    errors: Callable[[str, float], float] = usual_error,
    fails: Collection[Key] = (),
) -> Verdict:
    """`flips` is the share of samples that a solver decides unlike the training solver, `errors` how far it is off."""

    def predict(x: Tensor, solver: Any) -> Tensor:
        method, factor = solver.method, round(solver.step / H, 9)
        if (method, factor) in fails:
            raise NonFiniteError("too coarse")
        share = flips(method, factor) if callable(flips) else (flips or {}).get((method, factor), 0.0)
        sign = torch.where(x[:, 1] < share, -x[:, 0].sign(), x[:, 0].sign())
        return torch.stack([sign, -sign], dim=1) + errors(method, factor)

    ranks = torch.arange(400) / 400
    x = torch.stack([torch.where(torch.arange(400) % 2 > 0, 1.0, -1.0), ranks], dim=1)
    return wm.audit(predict, (x, (x[:, 0] < 0).long()), trained_with=OWN, evidence=False)


def test_a_model_that_all_solvers_solve_alike_is_a_flow() -> None:
    verdict = verdict_of()
    assert (verdict.outcome, verdict.own.metric, verdict.reference.metric) == (Outcome.FLOW, 1.0, 1.0)


def test_one_solver_at_least_as_accurate_that_scores_otherwise_ties_a_model_whose_flow_agrees() -> None:
    verdict = verdict_of(flips={("midpoint", 0.75): 0.3})
    assert gap_of(verdict).value == 0
    assert verdict.outcome is Outcome.TIED


@pytest.mark.parametrize("rounding", [0.0, 1e-4])
def test_a_solver_of_just_the_own_solvers_error_counts_however_it_is_rounded(rounding: float) -> None:
    """As with another library's pass and ours with the same steps, both in float32."""

    def errors(method: str, factor: float) -> float:
        return 0.1 * (1 + rounding) if (method, factor) == ("midpoint", 2.0) else usual_error(method, factor)

    assert verdict_of(flips={("midpoint", 2.0): 0.3}, errors=errors).outcome is Outcome.TIED


def test_a_solver_of_a_larger_error_does_not_count() -> None:
    verdict = verdict_of(flips={("euler", 1.5): 0.3, ("euler", 2.0): 0.4})
    assert verdict.outcome is Outcome.FLOW
    assert {line.gap.value for line in verdict.table if line.gap and line.gap.value} == {0.3, 0.4}, "own minus theirs"


def test_a_flow_that_scores_otherwise_ties_a_model_whose_other_solvers_all_agree() -> None:
    verdict = verdict_of(flips=lambda method, factor: 0.3 if method == "rk4" and factor not in STEP_FACTORS else 0.0)
    assert {line.metric for line in verdict.table} == {1.0}
    assert verdict.outcome is Outcome.TIED


def test_scores_that_are_no_classes_agree_up_to_the_threshold() -> None:
    judge, done = MeanScores(lambda outputs, _: outputs, "it", 0.5), PredictSubject(lambda x, _: x, OWN)
    passes = [done.forward(torch.tensor(x), None) for x in ([0.0, 0.0, 0.0, 0.0], [0.25, -0.5, 0.75, -1.0])]
    kept = [judge.keep(each, None, passes[0], None) for each in passes]
    assert judge.agreement(kept[1], kept[0]) == 0.5


SAME, FAR, FAR_BELOW, UNSURE = (
    Gap(value=value, low=value - half, high=value + half, samples=100)
    for value, half in ((0.0, 0.02), (0.3, 0.05), (-0.3, 0.05), (0.1, 0.05))
)


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [
        ([SAME, SAME], Outcome.FLOW),
        ([SAME, FAR], Outcome.TIED),
        ([FAR, SAME], Outcome.TIED),
        ([SAME, FAR_BELOW], Outcome.TIED),
        ([UNSURE, FAR], Outcome.TIED),
        ([SAME, UNSURE], Outcome.UNDECIDED),
        ([UNSURE, SAME], Outcome.UNDECIDED),
    ],
)
def test_a_single_gap_ties_and_a_single_doubt_leaves_open(gaps: list[Gap], outcome: Outcome) -> None:
    assert decide(gaps, 0.1) is outcome


UNSURE_BELOW = Gap(value=-0.1, low=-0.15, high=-0.05, samples=100)


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [
        ([SAME, FAR], Outcome.TIED),
        ([SAME, FAR_BELOW], Outcome.COARSE),
        ([FAR_BELOW, FAR], Outcome.TIED),
        ([FAR_BELOW, UNSURE], Outcome.UNDECIDED),
        ([FAR_BELOW, UNSURE_BELOW], Outcome.COARSE),
        ([SAME, UNSURE_BELOW], Outcome.UNDECIDED),
        ([SAME, SAME], Outcome.FLOW),
    ],
)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_worse_score_goes_first_and_a_better_one_alone_is_coarse(
    gaps: list[Gap], outcome: Outcome, better: Better
) -> None:
    """The own score minus another's is above 0 where that is the worse one, if higher scores are better."""
    flipped = [replace(g, value=-g.value, low=-g.high, high=-g.low) if better == "lower" else g for g in gaps]
    assert decide([replace(gap, better=better) for gap in flipped], 0.1) is outcome


def test_without_labels_nothing_is_tied() -> None:
    assert decide([SAME, FAR], 0.1, labelled=False) is Outcome.MOVED


# ---------------------------------------------------------------------------------------------------------
# The safe step


def test_a_coarse_step_that_agrees_by_luck_after_a_finer_one_did_not_is_not_safe() -> None:
    verdict = verdict_of(flips={("euler", 1.0): 0.05, ("euler", 8.0): 0.05})
    assert dict(verdict.safe.ladder)[2 * H] == dict(verdict.safe.ladder)[4 * H] == 1.0
    assert verdict.safe_step == H / 2


def test_a_coarse_step_that_agrees_after_a_finer_one_could_not_be_solved_is_not_safe() -> None:
    verdict = verdict_of(fails=[("euler", 2.0)])
    assert dict(verdict.safe.ladder)[4 * H] == 1.0
    assert verdict.safe_step == H


def test_a_step_that_agrees_on_just_the_share_asked_for_is_safe() -> None:
    """0.99, of 400 samples."""
    assert verdict_of(flips={("euler", 8.0): 4 / 400}).safe_step == 8 * H
    assert verdict_of(flips={("euler", 8.0): 5 / 400}).safe_step == 4 * H


def test_steps_too_fine_to_be_solved_are_passed_over() -> None:
    assert verdict_of(fails=[("euler", 0.125), ("euler", 0.25)]).safe_step == 8 * H


LADDERS = [
    *((FixedStep("euler", step=1 / n), STEP_LADDER, 1 / n) for n in (3, 10, 49, 64, 100)),
    *((Adaptive("dopri54", tolerance=t), TOLERANCE_LADDER, t) for t in (1e-3, 1e-4, 1e-5, 3e-4, 7e-6)),
]


@pytest.mark.parametrize(("own", "factors", "precision"), LADDERS)
def test_the_ladder_has_no_rounding_noise(own: Solver, factors: tuple[float, ...], precision: float) -> None:
    """Beside fractions, which do not round."""
    exact = Fraction(repr(precision)) if isinstance(own, Adaptive) else Fraction(1, round(1 / precision))
    found = [candidate(own).precision for candidate in ladder(own)]
    assert found == [float(exact * Fraction(repr(factor))) for factor in factors]


def test_a_step_that_was_handed_over_with_rounding_noise_is_safe_without() -> None:
    assert Candidate("euler", 0.5)(FixedStep("euler", step=0.031249999999999996)).precision == 1 / 64
    assert Candidate("midpoint", 1.5)(FixedStep("euler", step=0.1)).precision == 0.15
    odd = 0.123456789012345
    assert Candidate("euler", 1.0)(FixedStep("euler", step=odd)).precision == odd, "all of it may be meant"


def a_row(method: str, evaluations: int, agreeing: float = 1.0) -> Result:
    """Of a hundred samples, which the flow puts into class 0."""
    votes = (np.arange(100) >= 100 * agreeing).astype(float)
    return Result(
        solver=f"{method} {evaluations}",
        method=method,
        precision=1 / evaluations,
        kept={"scores": 1 - votes, "classes": votes},
        error=None,
        evaluations=evaluations,
    )


@pytest.mark.parametrize(
    ("others", "advised"),
    [
        ([a_row("midpoint", 64), a_row("midpoint", 32), a_row("rk4", 128)], "midpoint 32"),
        ([a_row("midpoint", 64), a_row("midpoint", 32, 0.9), a_row("rk4", 128), a_row("rk4", 48)], "rk4 48"),
        ([a_row("midpoint", 64, 0.9), a_row("midpoint", 32)], None),
        ([a_row("midpoint", 512), a_row("midpoint", 256)], None),
        ([a_row("midpoint", 8)], None),  # by luck, perhaps: nothing finer was tried
        ([], None),
    ],
)
def test_another_method_is_advised_where_it_is_safe_and_cheaper_than_the_training_methods_safe_step(
    others: list[Result], advised: str | None
) -> None:
    own = [a_row("euler", 512), a_row("euler", 256), a_row("euler", 16, 0.9)]
    standard = Standard(Accuracy(), a_row("flow", 1), 0.99)
    found = safe_elsewhere([*own, *others], a_row("euler", 16, 0.9), standard)
    assert (None if found is None else found.solver) == advised


def test_where_evaluations_are_not_counted_the_training_method_stays() -> None:
    assert "Or use" not in verdict_of(flips={("euler", 1.0): 0.05}).recommendation


# ---------------------------------------------------------------------------------------------------------
# The reference: an error of c k after steps of k h shows as an estimate of the same size


def test_the_reference_is_refined_until_its_error_is_a_tenth_of_the_training_solvers() -> None:
    verdict = verdict_of(errors=lambda method, factor: 0.03 * factor if method == "rk4" else 0.05 * factor)
    assert verdict.reference.solver == "rk4, h = 1/224"
    assert verdict.reference.error is not None
    assert verdict.own.error is not None
    assert 0.05 < verdict.reference.error / verdict.own.error <= 0.1


def test_where_the_training_solver_is_far_off_the_references_error_is_a_hundredth_of_the_state() -> None:
    verdict = verdict_of(errors=lambda method, factor: 0.2 * factor if method == "rk4" else 100 * factor)
    assert verdict.reference.solver == "rk4, h = 1/896"
    assert verdict.reference.error is not None
    assert 0.005 < verdict.reference.error / np.sqrt(2) <= 0.01


def test_a_reference_of_which_each_refinement_decides_one_in_a_hundred_anew_is_not_found() -> None:
    verdict = verdict_of(
        flips=lambda method, factor: 0.01 if method == "rk4" and round(np.log2(factor)) % 2 == 1 else 0.0
    )
    assert not verdict.reference.converged
    assert verdict.outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(("share", "still"), [(0.019, True), (0.021, False)])
def test_without_classes_a_mean_score_may_move_by_two_percent_of_the_threshold(share: float, still: bool) -> None:
    judge, subject = MeanScores(lambda outputs, _: outputs, "it", 0.5), PredictSubject(lambda x, _: x, OWN)
    one, other = (subject.forward(torch.tensor([1.0, 2.0]) + move, None) for move in (0.0, 0.5 * share))
    assert judge.still(one, other, None) is still


@pytest.mark.parametrize("found", [(True, False), (False, True), (True, True)])
def test_one_batch_whose_reference_is_not_found_leaves_all_of_them_undecided(found: tuple[bool, ...]) -> None:
    def predict(x: Tensor, solver: Any) -> Tensor:
        restless = bool(x[0, 1] < 0) and round(np.log2(solver.step)) % 2 == 1
        return torch.stack([x[:, 0], -x[:, 0]], dim=1) * (-1 if restless else 1 + solver.step)

    x = torch.stack([torch.tensor([1.0, -1.0]).repeat(200), torch.ones(400)], dim=1)
    batches = [(x if there else x * torch.tensor([1.0, -1.0]), (x[:, 0] < 0).long()) for there in found]
    verdict = wm.audit(predict, batches, trained_with=OWN, candidates=[], evidence=False, samples=None)
    assert verdict.reference.converged is all(found)
    assert verdict.outcome is (Outcome.FLOW if all(found) else Outcome.UNDECIDED)


@pytest.mark.parametrize(("step", "kept"), [(0.1, 0.1), (0.4, 0.4)])
def test_a_step_that_output_times_cut_short_is_not_told_as_a_safe_one(step: float, kept: float) -> None:
    """All steps of 0.1 and more are the same solve here: the model's own is told, or the finest."""

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            times = tuple(k / 10 for k in range(11))
            self.block = wm.ODEBlock(Still(), wm.FixedStep("euler", step=step), times=times)

        def forward(self, x: Tensor) -> Any:
            return self.block(x).movedim(0, 1).flatten(1)

    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    verdict = wm.audit(Series(), (x, torch.zeros(50, dtype=torch.int64)), threshold=0.9, agreement=0.5)
    assert verdict.outcome == "FLOW"
    assert verdict.safe_step == kept
    assert len({(line.method, line.evaluations, line.error) for line in verdict.table}) == len(verdict.table)


def test_a_grid_with_output_times_on_it_is_audited_on_coarser_grids_that_stop_there_too() -> None:
    grid = wm.OnGrid("euler", tuple(k / 16 for k in range(17)))
    block = wm.ODEBlock(Still(), grid, times=(0.0, 0.3125, 1.0))
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.stack([x * math.exp(-t / 2) for t in block.times], 1)

    def error(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().flatten(1).mean(dim=1).log10()

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Tensor) -> Any:
            return self.block(x).movedim(0, 1)

    verdict = wm.audit(Series(), (x, targets), metric=error, threshold=20.0)
    assert verdict.outcome == "FLOW"
    assert all(line.failed is None for line in verdict.table)


class Still(nn.Module):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return -0.5 * z
