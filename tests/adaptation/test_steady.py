"""Steady controllers on a plant that is known: the distance to a better solver is C precision^p, with noise."""

from itertools import pairwise
from math import log, log2

import numpy as np
import pytest

from windermere.adaptation import Score, State, SteadySteps, SteadyTolerances, StepAdaptation, review
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, Solver


def walk(
    controller: SteadySteps | SteadyTolerances, state: State, constants: list[float], order: float, noise: float = 0.0
) -> list[State]:
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


@pytest.mark.parametrize(("start", "constant"), [(0.5, 2.0), (0.005, 1.0)])
def test_the_step_settles_where_the_distance_meets_its_target(start: float, constant: float) -> None:
    states = walk(EULER, EULER.start(start), [constant] * 80, order=1)
    assert states[-1].precision == pytest.approx(0.02 / constant, rel=0.16)
    assert states[-1].precision == states[-20].precision
    assert states[-1].decision is not None
    assert "kept" in states[-1].decision.reason


def test_a_method_of_order_two_needs_half_the_correction() -> None:
    controller = SteadySteps(train="midpoint", check="rk4", target=0.02)
    states = walk(controller, controller.start(0.4), [2.0] * 60, order=2)
    assert states[-1].precision == pytest.approx((0.02 / 2.0) ** 0.5, rel=0.16)


def test_the_step_swings_less_than_a_third_of_the_noise_it_is_fed() -> None:
    states = walk(EULER, EULER.start(0.02), [1.0] * 200, order=1, noise=0.5)
    steady = np.std([log2(s.precision) for s in states[100:]])
    assert steady < 0.5 / log(2) / 3
    assert states[-1].precision <= 0.02  # danger is believed sooner than relief


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
    assert states[-1].precision == pytest.approx(1e-3, rel=0.16)


def test_a_state_with_its_memory_survives_being_saved() -> None:
    state = walk(EULER, EULER.start(0.02), [1.0] * 3, order=1)[-1]
    assert State.from_dict(state.to_dict()) == state
    assert state.memory is not None


def test_scores_without_a_distance_are_refused() -> None:
    with pytest.raises(UsageError, match="needs scores with a distance"):
        review(EULER, EULER.start(0.1), Score(value=0.9), lambda solver: Score(value=0.9))
