"""Random steps: a pure function of iteration and seed, with a finish on the model's own."""

from collections import Counter
from itertools import pairwise

import pytest
from torch import nn

import windermere as wm
from windermere.errors import UsageError

FINE = wm.FixedStep("midpoint", step=1 / 32)


def counts(schedule: wm.RandomSteps, iterations: range, of: int, seed: int = 0, own: wm.FixedStep = FINE) -> list[int]:
    return [round(schedule.span / schedule.at(iteration, of, seed)(own).step) for iteration in iterations]


def test_every_number_up_to_twice_the_mean_less_one_is_equally_likely() -> None:
    seen = Counter(counts(wm.RandomSteps(mean=4, finish=0.0), range(7000), 7000))
    assert sorted(seen) == [1, 2, 3, 4, 5, 6, 7]
    assert all(abs(count - 1000) < 5 * (1000 * 6 / 7) ** 0.5 for count in seen.values())


def test_steps_depend_on_iteration_and_seed_alone() -> None:
    schedule = wm.RandomSteps()
    forwards = counts(schedule, range(3000), 10_000)
    assert counts(schedule, range(2999, -1, -1), 20_000)[::-1] == forwards
    assert counts(schedule, range(3000), 10_000, seed=1) != forwards


def test_the_finish_halves_steps_down_to_the_models_own_at_equal_cost() -> None:
    seen = counts(wm.RandomSteps(mean=4, finish=0.2), range(800, 1000), 1000)
    assert all(after in (before, 2 * before) for before, after in pairwise(seen))
    assert Counter(seen).keys() == {8, 16, 32}
    assert {steps: round(steps * many, -2) for steps, many in Counter(seen).items()} == {8: 900, 16: 900, 32: 900}


def test_the_finish_begins_with_no_fewer_steps_than_were_drawn() -> None:
    for mean in (2, 3, 4, 5, 9):
        first, *_, last = counts(wm.RandomSteps(mean=mean, finish=0.5), range(50, 100), 100)
        assert (last, first >= 2 * mean) == (32, True)
    assert counts(wm.RandomSteps(mean=40, finish=0.5), range(50, 100), 100) == [32] * 50


def test_without_a_finish_steps_are_drawn_to_the_end() -> None:
    assert set(counts(wm.RandomSteps(mean=2, finish=0.0), range(60, 100), 100)) == {1, 2, 3}


def test_the_method_is_the_models_and_the_span_the_schedules() -> None:
    schedule = wm.RandomSteps(span=5.0)
    for method in ("euler", "rk4"):
        drawn = schedule.at(0, 100)(wm.FixedStep(method, step=5 / 64))
        assert (drawn.method, len(drawn.nodes(0.0, 5.0)) - 1) == (method, round(5 / drawn.step))


def test_a_block_solves_with_what_was_drawn_and_has_its_own_back() -> None:
    block = wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), FINE)
    with wm.using(block, wm.RandomSteps().at(3, of=10)):
        assert block.solver == wm.RandomSteps().at(3, of=10)(FINE) != FINE
    assert block.solver == FINE


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mean": 1}, "mean must be a whole number of steps, at least 2, not 1"),
        ({"mean": 2.5}, "mean must be a whole number"),
        ({"finish": 1.0}, "finish must be a share of all iterations"),
        ({"finish": -0.1}, "finish must be a share of all iterations"),
        ({"finish": "half"}, "finish must be a share of all iterations"),
        ({"span": 0.0}, "span must be positive"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wm.RandomSteps(**settings)  # type: ignore[arg-type]


def test_iterations_beyond_the_last_and_adaptive_solvers_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no 10 among 10"):
        wm.RandomSteps().at(10, of=10)
    for iteration in (0, 9):
        with pytest.raises(UsageError, match="random steps are for fixed steps of one size"):
            wm.RandomSteps().at(iteration, of=10)(wm.Adaptive("dopri54", tolerance=1e-3))
