"""Steady controllers on a plant that is known: the distance to a better solver is C precision^p, with noise."""

import json
from dataclasses import replace
from itertools import pairwise
from math import e, log, log2
from typing import Any

import numpy as np
import pytest
import torch

from windermere.adaptation import ControllerState, Review, Score, SteadySteps, SteadyTolerances, StepAdaptation, review
from windermere.adaptation.signals import moved_mass
from windermere.errors import ToleranceError, UsageError
from windermere.nn import Autonomous, ODEBlock, using
from windermere.solvers import Adaptive, FixedStep, Solver, solve


def walk(
    controller: SteadySteps | SteadyTolerances,
    state: ControllerState,
    constants: list[float],
    order: float,
    noise: float = 0.0,
) -> list[ControllerState]:
    """A review for each of the plant's constants C."""
    generator = np.random.default_rng(0)
    states = []
    for constant in constants:
        distance = constant * state.precision**order * float(np.exp(noise * generator.normal()))

        def score(solver: Solver, distance: float = distance) -> Score:
            return Score(value=0.9, distance=distance)

        state = review(controller, state, Score(value=0.9), score)
        states.append(state)
    return states


EULER = SteadySteps(train="euler", check="midpoint", target=0.02)


def test_a_step_that_is_too_coarse_settles_where_the_distance_meets_its_target() -> None:
    steps = [s.precision for s in walk(EULER, EULER.start(0.5), [2.0] * 40, order=1)]
    assert steps[:3] == [0.25, 0.125, 0.0625]
    assert steps[20:] == pytest.approx([0.02 / 2.0] * 20, rel=0.02)
    assert steps[-1] == pytest.approx(0.02 / 2.0, rel=1e-3)


def test_a_step_that_is_too_fine_settles_where_the_distance_is_released() -> None:
    states = walk(EULER, EULER.start(0.005), [1.0] * 80, order=1)
    assert states[0].precision == pytest.approx(1.1 * 0.005)
    assert states[-1].precision == pytest.approx(0.5 * 0.02 / 1.0)
    assert states[-1].precision == states[-20].precision


def test_between_release_and_target_nothing_moves() -> None:
    drift = [float(c) for c in np.geomspace(0.55, 0.95, 100)]
    assert {s.precision for s in walk(EULER, EULER.start(0.02), drift, order=1)} == {0.02}


def test_memory_is_a_mean_at_first_and_then_forgets_at_its_weight() -> None:
    memories = [s.memory for s in walk(EULER, EULER.start(0.02), [0.6, 0.8, 1.0, 0.6, 0.7, 0.9], order=1)]
    assert memories[:5] == pytest.approx([0.6, 0.7, 0.8, 0.75, 0.74])
    assert memories[5] == pytest.approx(0.8 * 0.74 + 0.2 * 0.9)


@pytest.mark.parametrize("distance", [float("nan"), float("inf")])
def test_a_distance_that_is_not_finite_refines_and_is_not_remembered(distance: float) -> None:
    before = walk(EULER, EULER.start(0.02), [0.8], order=1)[-1]
    after = review(EULER, before, Score(value=0.9), lambda solver: Score(value=0.1, distance=distance))
    assert after.precision == 0.5 * before.precision
    assert after.memory == before.memory


def test_a_method_of_order_two_needs_half_the_correction() -> None:
    controller = SteadySteps(train="midpoint", check="rk4", target=0.02)
    states = walk(controller, controller.start(0.4), [2.0] * 60, order=2)
    assert states[-1].precision == pytest.approx((0.02 / 2.0) ** 0.5)


@pytest.mark.parametrize(("train", "check", "order"), [("euler", "midpoint", 1), ("midpoint", "rk4", 2)])
@pytest.mark.parametrize(("distance", "allowed"), [(0.03, 0.02), (0.0095, 0.01)], ids=["refined", "coarsened"])
def test_one_review_goes_just_as_far_as_the_methods_order_says(
    train: str, check: str, order: int, distance: float, allowed: float
) -> None:
    """A distance C h^p becomes `allowed` where h is multiplied by (allowed / distance)^(1/p)."""
    controller = SteadySteps(train=train, check=check, target=0.02)
    (state,) = walk(controller, controller.start(0.1), [distance / 0.1**order], order=order)
    assert state.precision == pytest.approx(0.1 * (allowed / distance) ** (1 / order))


@pytest.mark.parametrize("distance", [10.0, 1e300])
def test_one_odd_batch_is_not_remembered_for_long(distance: float) -> None:
    calm = walk(EULER, EULER.start(0.02), [0.75] * 20, order=1)[-1]
    odd = review(EULER, calm, Score(value=0.9), lambda solver: Score(value=0.9, distance=distance))
    assert odd.precision >= 0.5 * calm.precision
    assert walk(EULER, odd, [0.75] * 60, order=1)[-1].precision >= 0.6 * calm.precision


def test_at_its_bounds_the_step_says_so() -> None:
    finest = walk(EULER, EULER.start(1 / 400), [100.0] * 2, order=1)[-1].decision
    coarsest = walk(EULER, EULER.start(0.95), [0.001] * 2, order=1)[-1].decision
    assert finest is not None
    assert coarsest is not None
    assert (finest.after, finest.reason) == (1 / 500, "distance above its target: refined as far as the budget allows")
    assert (coarsest.after, coarsest.reason) == (1.0, "distance far below its target: coarsened as far as can be")


def test_the_step_swings_less_than_a_tenth_of_the_noise_it_is_fed() -> None:
    states = walk(EULER, EULER.start(0.02), [1.0] * 200, order=1, noise=0.3)
    swings = float(np.std([log2(s.precision) for s in states[100:]]))
    assert swings < 0.3 / log(2) / 10
    assert 0.01 < states[-1].precision < 0.02  # danger is believed, relief has to last


def test_a_field_that_grows_stiffer_is_followed_within_a_few_reviews() -> None:
    states = walk(EULER, EULER.start(0.02), [1.0] * 5 + [8.0] * 8, order=1)
    assert states[-1].precision < 0.02 / 4
    steps = [s.precision for s in states]
    assert all(after >= 0.5 * before for before, after in pairwise(steps))


def test_steps_stay_between_the_budget_and_the_span() -> None:
    assert walk(EULER, EULER.start(0.01), [1e6] * 20, order=1)[-1].precision == 1 / 500
    assert walk(EULER, EULER.start(0.5), [0.0] * 20, order=1)[-1].precision == 1.0


def test_the_check_is_that_of_the_papers_algorithm() -> None:
    asked: list[Solver] = []

    def score(solver: Solver) -> Score:
        asked.append(solver)
        return Score(value=0.9, distance=0.02)

    review(EULER, EULER.start(0.1), Score(value=0.9), score)
    assert asked == [StepAdaptation(train="euler", check="midpoint").check_solver(0.1)]
    assert EULER.solver(EULER.start(0.1)) == FixedStep("euler", step=0.1)


def test_tolerances_settle_likewise() -> None:
    controller = SteadyTolerances(train="fehlberg21", target=0.02)
    assert controller.solver(controller.start()) == Adaptive("fehlberg21", tolerance=1e-6)
    states = walk(controller, controller.start(), [20.0] * 150, order=1)
    assert states[0].precision == pytest.approx(2e-6)
    assert states[-1].precision == pytest.approx(0.5 * 0.02 / 20)


def test_a_state_with_its_memory_survives_being_saved() -> None:
    state = walk(EULER, EULER.start(0.02), [1.0] * 3, order=1)[-1]
    assert ControllerState.from_dict(state.to_dict()) == state
    assert state.memory is not None


def test_scores_without_a_distance_are_refused() -> None:
    with pytest.raises(UsageError, match="needs scores with a distance"):
        review(EULER, EULER.start(0.1), Score(value=0.9), lambda solver: Score(value=0.9))


@pytest.mark.parametrize(
    "settings",
    [
        {"release": 1.5},
        {"weight": 2.0},
        {"decrease": 1.0},
        {"target": 0.0},
        {"target": float("inf")},
        {"every": 0.5},
        {"budget": 0.5},
    ],
)
def test_constants_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        SteadySteps(train="euler", check="midpoint", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"check_ratio": 5.0}, {"check_ratio": -1.0}, {"floor": 2.0}, {"train": "euler"}, {"train": "bosh32"}]
)
def test_tolerances_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SteadyTolerances(**{"train": "dopri54", **settings})


def test_the_floor_is_a_tolerance_that_float32_resolves() -> None:
    controller = SteadyTolerances(train="dopri54")
    solver = controller.solver(controller.start(1e-12))
    assert solver.precision == controller.floor
    solution = solve(lambda t, z: -z, 3 * torch.ones(4, 2), solver)
    torch.testing.assert_close(solution.final, 3 * torch.ones(4, 2) / e, rtol=1e-6, atol=0)
    finer = controller.solver(ControllerState(precision=1e-12))
    with pytest.raises(ToleranceError):
        solve(lambda t, z: -z, 3 * torch.ones(4, 2), finer)


def test_scores_of_tensors_leave_no_graph_behind_in_the_state() -> None:
    outputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def score(solver: Solver) -> Score:
        value = outputs.square().mean()
        return Score(value=value, distance=moved_mass(outputs, 1.01 * outputs), steps=torch.tensor(3))

    state = EULER.start(0.1)
    for _ in range(3):
        state = review(EULER, state, Score(value=outputs.mean()), score)
    assert ControllerState.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    assert type(state.precision) is type(state.memory) is float


def a_block(times: tuple[float, ...], solver: Solver) -> ODEBlock:
    return ODEBlock(Autonomous(torch.nn.Linear(2, 2)), solver, times=times)


@pytest.mark.parametrize("times", [(0.0, 5.0), (2.0, 0.5, -3.0), (0.0, 1.0, 2.5, 5.0)])
@pytest.mark.parametrize("kind", [SteadySteps, StepAdaptation])
def test_steps_adapted_for_another_time_than_the_model_is_solved_for_are_refused(
    kind: type[SteadySteps] | type[StepAdaptation], times: tuple[float, ...]
) -> None:
    controller, x = kind(train="euler", check="midpoint"), torch.ones(4, 2)
    block = a_block(times, controller.solver(controller.start(0.5)))

    def score(solver: Solver) -> Score:
        with torch.no_grad(), using(block, solver):
            block(x)
        return Score(value=0.9, distance=0.0)

    name = kind.__name__
    with pytest.raises(UsageError, match=f"is solved for a time of 5, but {name} adapts steps for 1: give it span=5"):
        review(controller, controller.start(0.5), Score(value=0.9), score)
    right = replace(controller, span=5.0)
    assert review(right, right.start(2.5), Score(value=0.9), score).precision > 2.5


def test_a_block_that_keeps_its_own_solver_may_be_solved_for_another_time() -> None:
    adapted = a_block((0.0, 1.0), FixedStep("euler", step=0.5))
    other = a_block((0.0, 5.0), FixedStep("rk4", step=0.5))

    def score(solver: Solver) -> Score:
        with torch.no_grad(), using(adapted, solver):
            other(adapted(torch.ones(4, 2)))
        return Score(value=0.9, distance=0.0)

    assert review(EULER, EULER.start(0.5), Score(value=0.9), score).reviews == 1


@pytest.mark.parametrize("kind", [SteadySteps, StepAdaptation])
def test_a_first_step_longer_than_the_time_is_refused_rather_than_cut(
    kind: type[SteadySteps] | type[StepAdaptation],
) -> None:
    controller = kind(train="euler", check="midpoint")
    with pytest.raises(UsageError, match=r"first step of 2\.5 is longer than the time of 1 .* as span="):
        controller.start(2.5)
    assert replace(controller, span=5.0).start(2.5).precision == 2.5
    assert controller.start(1.0 + 1e-12).precision == 1.0  # rounding is no other time


def test_a_number_is_no_score() -> None:
    with pytest.raises(UsageError, match=r"trained is a windermere.Score\(value=...\), not a float"):
        review(EULER, EULER.start(0.5), 0.9, lambda solver: Score(value=0.9))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"score\(solver\) returns a windermere.Score\(value=...\), not a Tensor"):
        review(EULER, EULER.start(0.5), Score(value=0.9), lambda solver: torch.tensor(0.9))  # type: ignore[arg-type, return-value]


def test_a_score_that_runs_out_of_batches_does_not_pass_for_a_decision() -> None:
    with pytest.raises(StopIteration):
        review(EULER, EULER.start(0.5), Score(value=0.9), lambda solver: next(iter(())))


class Resting(SteadySteps):
    """A controller that may decide without asking."""

    def review(self, state: ControllerState, trained: Score) -> Review[FixedStep]:
        if trained.value < 1:
            yield self.solver(state)
        return replace(state, reviews=state.reviews + 1)


@pytest.mark.parametrize(("value", "asked"), [(1.0, 0), (0.5, 1)])
def test_a_controller_need_not_ask_for_a_score(value: float, asked: int) -> None:
    controller, solvers = Resting(train="euler", check="midpoint"), list[Solver]()

    def score(solver: Solver) -> Score:
        solvers.append(solver)
        return Score(value=1.0)

    assert review(controller, controller.start(0.5), Score(value=value), score).reviews == 1
    assert len(solvers) == asked


def test_a_start_that_is_a_tensor_is_kept_as_a_number() -> None:
    assert json.loads(json.dumps(EULER.start(torch.tensor(0.5)).to_dict()))["precision"] == 0.5  # type: ignore[arg-type]
