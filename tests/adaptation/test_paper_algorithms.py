"""Hand-traced runs of Algorithms 2 and 3: scripted scores in, every solver asked for and every precision out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log10, nan
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.adaptation.algorithms import EULER, FEHLBERG
from windermere.adaptation import (
    Controller,
    ControllerState,
    Decision,
    Score,
    StepAdaptation,
    ToleranceAdaptation,
    review,
)
from windermere.errors import ThresholdWarning, UsageError
from windermere.nn import Autonomous, ODEBlock, using
from windermere.solvers import Adaptive, FixedStep, Solver


def traced(
    controller: Controller, state: ControllerState, trained: float, answers: Sequence[float | Score], steps: int = 10
) -> tuple[ControllerState, list[Solver]]:
    """One review with scripted answers, and what was asked for."""
    asked: list[Solver] = []
    script = iter(answers)

    def score(solver: Solver) -> Score:
        asked.append(solver)
        answer = next(script)
        return answer if isinstance(answer, Score) else Score(value=answer, steps=steps)

    state = review(controller, state, Score(value=trained, steps=steps, evaluations=20), score)
    assert next(script, None) is None, "not all answers were asked for"
    return state, asked


def test_scores_that_differ_by_more_than_the_threshold_halve_the_step() -> None:
    state, asked = traced(EULER, EULER.start(0.01), 0.9, [0.7])
    assert asked == [FixedStep("midpoint", step=0.01)]
    assert state.precision == 0.005
    assert state.decision is not None
    assert (state.decision.iteration, state.decision.before, state.decision.after) == (50, 0.01, 0.005)
    assert state.decision.raised is None


def test_a_difference_of_just_the_threshold_is_none() -> None:
    """Nor where a quotient's rounding makes it more: 0.4 - 0.3 is 0.10000000000000003."""
    controller = replace(EULER, threshold=0.1)
    for checked in (right / 10 for right in range(1, 9)):
        state, _ = traced(controller, controller.start(0.01), checked + 0.1, [checked, checked - 0.1])
        assert state.precision == 0.01 * 1.1


def test_the_difference_counts_in_either_direction() -> None:
    state, _ = traced(EULER, EULER.start(0.01), 0.5, [0.7])
    assert state.precision == 0.005


def test_agreement_increases_the_step_by_a_tenth_after_a_second_look() -> None:
    state, asked = traced(EULER, EULER.start(0.01), 0.9, [0.88, 0.85])
    assert asked == [FixedStep("midpoint", step=0.01), FixedStep("euler", step=0.01 * 1.1)]
    assert state.precision == 0.01 * 1.1
    assert state.decision is not None
    assert state.decision.raised == 0.85


def test_an_increase_that_the_second_look_rejects_is_not_made() -> None:
    state, asked = traced(EULER, EULER.start(0.01), 0.9, [0.88, 0.7])
    assert len(asked) == 2
    assert state.precision == 0.01
    assert state.decision is not None
    assert "kept" in state.decision.reason


def test_the_second_look_compares_with_the_check_and_not_with_the_training_score() -> None:
    state, _ = traced(EULER, EULER.start(0.01), 0.90, [0.82, 0.73])  # 0.17 from training, 0.09 from the check
    assert state.precision == 0.01 * 1.1


def test_a_score_that_is_not_a_number_never_agrees_with_another() -> None:
    state, asked = traced(EULER, EULER.start(0.01), 0.9, [nan])
    assert asked == [FixedStep("midpoint", step=0.01)]
    assert state.precision == 0.005
    state, asked = traced(EULER, EULER.start(0.01), 0.9, [0.9, nan])
    assert asked == [FixedStep("midpoint", step=0.01), FixedStep("euler", step=0.01 * 1.1)]
    assert state.precision == 0.01
    assert state.decision is not None
    assert "kept" in state.decision.reason


def test_the_step_never_exceeds_the_time_span() -> None:
    controller = StepAdaptation(train="euler", check="rk4", span=2.0)
    state, asked = traced(controller, controller.start(1.9), 0.9, [0.9, 0.9])
    assert asked[1] == FixedStep("euler", step=2.0)
    assert state.precision == 2.0
    again, _ = traced(controller, state, 0.9, [0.9, 0.9])
    assert again.precision == 2.0


def test_the_budget_bounds_how_far_the_step_shrinks() -> None:
    controller = StepAdaptation(train="euler", check="midpoint", budget=100)
    state = controller.start(0.015)
    state, _ = traced(controller, state, 0.9, [0.5])
    assert state.precision == 0.01
    state, _ = traced(controller, state, 0.9, [0.5])
    assert state.precision == 0.01
    assert controller.start(1e-6).precision == 0.01


@pytest.mark.parametrize(
    ("train", "check", "step", "wanted"),
    [
        ("euler", "midpoint", 0.0199, 0.0199),  # h^(2-1) < 1/50
        ("euler", "midpoint", 0.0201, (0.0201 / 50) ** 0.5),
        ("euler", "midpoint", 0.5, 0.1),  # (0.5 / 50)^(1/2)
        ("euler", "rk4", 0.27, 0.27),  # h^3 = 0.0197
        ("euler", "rk4", 0.28, (0.28 / 50) ** 0.25),
        ("midpoint", "rk4", 0.14, 0.14),  # h^2 = 0.0196
        ("midpoint", "rk4", 0.15, (0.15**2 / 50) ** 0.25),
    ],
)
def test_the_check_solvers_error_order_is_fifty_times_smaller(
    train: str, check: str, step: float, wanted: float
) -> None:
    controller = StepAdaptation(train=train, check=check)
    assert controller.check_solver(step).method == check
    assert controller.check_solver(step).step == pytest.approx(wanted)
    longer = StepAdaptation(train=train, check=check, span=4.0)
    assert longer.check_solver(4 * step).step == pytest.approx(4 * wanted)


def test_a_whole_training_is_traced_number_by_number() -> None:
    state, steps = EULER.start(0.02), []
    for trained, answers in ((0.6, [0.6, 0.6]), (0.7, [0.7, 0.5]), (0.8, [0.6]), (0.8, [0.75]), (0.9, [0.9, 0.85])):
        answers = answers if abs(trained - answers[0]) > 0.1 or len(answers) == 2 else [*answers, answers[0]]
        state, _ = traced(EULER, state, trained, answers)
        steps.append(state.precision)
    first = 0.02 * 1.1
    assert steps == [first, first, first * 0.5, first * 0.5 * 1.1, first * 0.5 * 1.1 * 1.1]
    assert state.reviews == 5
    assert state.decision is not None
    assert state.decision.iteration == 250


def test_tolerances_start_at_a_millionth_and_are_checked_at_a_fifth_or_a_tenth() -> None:
    for train, ratio in (("fehlberg21", 1 / 5), ("dopri54", 1 / 10)):
        controller = ToleranceAdaptation(train=train)
        state = controller.start()
        assert controller.solver(state) == Adaptive(train, tolerance=1e-6)
        state, asked = traced(controller, state, 0.9, [0.9, 0.9])
        assert asked == [Adaptive("dopri54", tolerance=ratio * 1e-6), Adaptive(train, tolerance=1e-6 * 1.1)]
        assert state.precision == 1e-6 * 1.1


def test_tolerances_are_halved_kept_or_raised_like_steps() -> None:
    start = FEHLBERG.start(1e-3)
    assert traced(FEHLBERG, start, 0.9, [0.7])[0].precision == 5e-4
    assert traced(FEHLBERG, start, 0.9, [0.9, 0.7])[0].precision == 1e-3
    assert traced(FEHLBERG, start, 0.9, [0.9, 0.85])[0].precision == 1e-3 * 1.1


def test_tolerances_do_not_agree_on_a_score_that_is_not_a_number() -> None:
    start = FEHLBERG.start(1e-3)
    state, asked = traced(FEHLBERG, start, 0.9, [nan])
    assert (state.precision, len(asked)) == (5e-4, 1)
    state, asked = traced(FEHLBERG, start, 0.9, [0.9, nan])
    assert (state.precision, len(asked)) == (1e-3, 2)
    assert state.decision is not None
    assert "kept" in state.decision.reason


def test_a_tolerance_is_not_raised_where_a_solve_takes_two_steps() -> None:
    state, asked = traced(FEHLBERG, FEHLBERG.start(1e-3), 0.9, [0.9], steps=2)
    assert (state.precision, len(asked)) == (1e-3, 1)
    assert traced(FEHLBERG, FEHLBERG.start(1e-3), 0.9, [0.9, 0.9], steps=3)[0].precision == 1e-3 * 1.1


def test_a_score_that_counts_no_steps_is_refused_rather_than_never_raise_the_tolerance() -> None:
    told = Score(value=0.9)
    with pytest.raises(UsageError, match=r"more than 2 steps: give Score\(value=..., steps=...\), or min_steps=0"):
        review(FEHLBERG, FEHLBERG.start(1e-3), told, lambda solver: told)
    any_steps = replace(FEHLBERG, min_steps=0)
    assert review(any_steps, any_steps.start(1e-3), told, lambda solver: told).precision == 1e-3 * 1.1


def test_a_tolerance_has_a_floor() -> None:
    controller = ToleranceAdaptation(train="fehlberg21", floor=1e-5)
    state, _ = traced(controller, controller.start(1.5e-5), 0.9, [0.5])
    assert state.precision == 1e-5
    assert traced(controller, state, 0.9, [0.5])[0].precision == 1e-5
    assert controller.start(1e-6).precision == 1e-5


def test_a_check_can_be_tightened_until_it_costs_more_than_training() -> None:
    controller = ToleranceAdaptation(train="dopri54", tighten=True)
    cheap, dear = Score(value=0.9, evaluations=20), Score(value=0.6, evaluations=21)
    state, asked = traced(controller, controller.start(1e-3), 0.9, [cheap, cheap, dear])
    assert [a.precision for a in asked] == [pytest.approx(v) for v in (1e-4, 1e-5, 1e-6)]
    assert state.precision == 5e-4


def test_a_check_is_tightened_no_further_than_float64_resolves() -> None:
    controller = ToleranceAdaptation(train="dopri54", tighten=True, floor=1e-12)
    free = Score(value=0.9, evaluations=20)
    state, asked = traced(controller, controller.start(2e-9), 0.9, [free] * 5)
    assert [a.precision for a in asked] == [pytest.approx(v) for v in (2e-10, 2e-11, 2e-12, 2e-13, 2.2e-9)]
    assert state.precision == pytest.approx(2.2e-9)


def test_the_second_look_at_a_tolerance_compares_with_the_check_too() -> None:
    state, _ = traced(FEHLBERG, FEHLBERG.start(1e-3), 0.90, [0.82, 0.73])  # 0.17 from training, 0.09 from the check
    assert state.precision == 1e-3 * 1.1


of_both_algorithms = pytest.mark.parametrize("controller", [EULER, FEHLBERG], ids=["Algorithm 2", "Algorithm 3"])


@of_both_algorithms
@pytest.mark.parametrize("scores", [(-4.7, [-2.9]), (0.3, [3.2]), (0.9, [0.9, 1.5]), (93.5, [93.0]), (inf, [0.5])])
def test_without_a_threshold_a_score_that_is_no_accuracy_is_refused(
    controller: StepAdaptation | ToleranceAdaptation, scores: tuple[float, list[float]]
) -> None:
    """Logarithms of errors, errors, percents."""
    start = controller.start(0.01)
    with pytest.raises(UsageError, match=r"is no accuracy from 0 to 1, .* give the controller threshold=\.\.\. in the"):
        traced(controller, start, *scores)
    assert traced(replace(controller, threshold=0.4), start, *scores)[0].reviews == 1


@of_both_algorithms
@pytest.mark.parametrize("scores", [(2e-5, [1.3e-3, 1e-3]), (1e-3, [1.1e-3, 4e-3]), (0.08, [0.01, 0.01])])
def test_without_a_threshold_scores_that_differ_by_a_factor_do_not_pass_for_the_same_in_silence(
    controller: StepAdaptation | ToleranceAdaptation, scores: tuple[float, list[float]]
) -> None:
    """Squared errors of a regression, for which 0.1 means nothing. Accuracies are only warned of: the rule is kept."""
    start = controller.start(0.01)
    with pytest.warns(ThresholdWarning, match="differ by a factor of more than 2 pass for the same") as told:
        assert traced(controller, start, *scores)[0].precision == 0.01 * 1.1
    assert {Path(warning.filename).name for warning in told} == {Path(__file__).name}  # where the review is asked for
    assert traced(replace(controller, threshold=0.1), start, *scores)[0].precision == 0.01 * 1.1


@of_both_algorithms
def test_accuracies_at_chance_and_errors_by_their_logarithm_are_reviewed_in_silence(
    controller: StepAdaptation | ToleranceAdaptation,
) -> None:
    start = controller.start(0.01)
    for trained, answers in ((0.08, [0.09, 0.07]), (0.0, [0.0, 0.0]), (0.1, [0.125, 0.09]), (1 + 1e-12, [1.0, 1.0])):
        assert traced(controller, start, trained, answers)[0].precision == 0.01 * 1.1
    errors = replace(controller, threshold=0.3)
    assert traced(errors, start, log10(2e-5), [log10(1.3e-3)])[0].precision == 0.005


def a_regression(controller: StepAdaptation, value: Callable[[Tensor], Tensor]) -> list[Decision]:
    """Trained to turn points in the plane by Euler steps, reviewed by this score of its squared error."""
    torch.manual_seed(0)
    inputs = 0.5 * torch.randn(256, 2)
    targets = inputs @ torch.linalg.matrix_exp(torch.tensor([[-0.5, -6.0], [6.0, -0.5]])).T
    state, decisions = controller.start(0.05), []
    block = ODEBlock(Autonomous(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))), controller.solver(state))
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-2)

    def error() -> Tensor:
        return F.mse_loss(block(inputs), targets)

    def score(solver: Solver) -> Score:
        with torch.no_grad(), using(block, solver):
            return Score(value=value(error()))

    for iteration in range(1, 601):
        loss = error()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if iteration % controller.every == 0:
            state = review(controller, state, Score(value=value(loss)), score)
            block.solver = controller.solver(state)
            decisions += [state.decision] if state.decision is not None else []
        optimizer.step()
    return decisions


def test_a_regression_that_its_threshold_lets_become_tied_is_told_of_it() -> None:
    with pytest.warns(ThresholdWarning, match="threshold=0.3"):
        told = a_regression(replace(EULER, every=20), lambda error: error)[-1]
    assert told.checked > 10 * told.trained
    kept = a_regression(replace(EULER, every=20, threshold=0.3), torch.log10)[-1]
    assert kept.checked - kept.trained < 2 * 0.3


def test_a_state_survives_being_saved() -> None:
    state, _ = traced(EULER, EULER.start(0.01), 0.9, [0.88, 0.85])
    assert ControllerState.from_dict(state.to_dict()) == state
    assert ControllerState.from_dict(EULER.start(0.01).to_dict()) == EULER.start(0.01)
