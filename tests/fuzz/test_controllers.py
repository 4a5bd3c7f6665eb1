"""Controllers under whatever scores: each review is a step within bounds or a sentence, and a saved state goes on bit
for bit as the one that was not saved."""

import json
import random
import warnings
from functools import partial
from math import inf, nan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.judging import outcome
from tests.fuzz.profiles import examples
from tests.fuzz.strategies import (
    ODD,
    Recipe,
    adaptive_methods,
    adaptive_solvers,
    altered,
    fixed_solvers,
    methods,
    mostly,
)
from windermere.adaptation import (
    ControllerState,
    Score,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
    controller_from_dict,
    controller_to_dict,
    review,
)
from windermere.errors import ThresholdWarning, WindermereError
from windermere.solvers import solver_from_dict, solver_to_dict

positive = st.one_of(st.floats(-6, 1).map(lambda e: 10**e), st.sampled_from([1e-300, 1e-150, 1e150]))
shares = st.floats(0.01, 0.99)
common = {"every": mostly(st.integers(1, 99)), "decrease": mostly(shares), "increase": mostly(st.floats(1.01, 9))}
threshold = {"threshold": mostly(st.one_of(st.none(), positive))}
steady = {"target": mostly(positive), "release": mostly(shares), "weight": mostly(shares)}
in_steps = {"span": mostly(positive), "budget": mostly(st.integers(1, 10**6))}
in_tolerances = {"check_ratio": mostly(st.one_of(st.none(), shares)), "floor": mostly(positive)}
KINDS: dict[Any, tuple[Any, dict[str, Any]]] = {
    StepAdaptation: (methods, {**common, **threshold, **in_steps}),
    ToleranceAdaptation: (
        adaptive_methods,
        {**common, **threshold, **in_tolerances, "min_steps": mostly(st.integers(0, 5)), "tighten": st.booleans()},
    ),
    SteadySteps: (methods, {**common, **steady, **in_steps}),
    SteadyTolerances: (adaptive_methods, {**common, **steady, **in_tolerances, "ceiling": mostly(positive)}),
}


@st.composite
def controllers(draw: Any) -> Recipe:
    kind = draw(st.sampled_from(list(KINDS)))
    pair, options = KINDS[kind]
    chosen = draw(st.fixed_dictionaries({}, optional=options))
    return Recipe(kind, (), {"train": draw(mostly(pair)), "check": draw(mostly(pair)), **chosen})


values = mostly(st.one_of(st.floats(0, 1), positive), st.sampled_from([nan, inf, -inf, -3.0, 1e300]))
distances = mostly(st.one_of(st.none(), st.floats(0, 2), positive), st.sampled_from([0.0, inf, nan, 1e300]), every=5)


def scores(chance: random.Random) -> Any:
    """A function of a solver, the same for the same chance: nearly all agree, some do not."""

    def score(solver: Any) -> Score:
        value = chance.choice([0.9, 0.9, 0.95, 0.5, nan])
        return Score(
            value=value,
            distance=chance.choice([0.0, 1e-12, 1e-3, 0.05, 1.0, inf]),
            steps=chance.randrange(9),
            evaluations=chance.randrange(99),
        )

    return score


def reviewed(controller: Any, state: ControllerState, trained: Score, seed: int, times: int) -> ControllerState:
    score = scores(random.Random(seed))
    for _ in range(times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)
            state = review(controller, state, trained, score)
    return state


@examples("controllers")
@given(
    recipe=controllers(),
    start=mostly(positive),
    trained=st.fixed_dictionaries({"value": values, "distance": distances, "steps": mostly(st.integers(0, 9))}),
    seed=st.integers(0, 999),
)
def test_reviews_stay_within_bounds_and_a_saved_state_goes_on_bit_for_bit(
    recipe: Recipe, start: Any, trained: dict[str, Any], seed: int
) -> None:
    def run(saving: bool) -> Any:
        def call() -> Any:
            controller: Any = recipe.made()
            state, first = controller.start(start), Score(**trained)
            for part in range(3):
                state = reviewed(controller, state, first, seed + part, 2)
                finest, coarsest = controller.bounds
                assert finest * (1 - 1e-9) <= state.precision <= coarsest * (1 + 1e-9)
                if saving:
                    values = controller_to_dict(controller), state.to_dict()
                    again = json.loads(json.dumps(values))
                    controller, state = controller_from_dict(again[0]), ControllerState.from_dict(again[1])
            return json.dumps(state.to_dict()), solver_to_dict(controller.solver(state))

        return outcome(call)

    whole, pieces = run(False), run(True)
    assert (type(whole), str(whole)) == (type(pieces), str(pieces))


@examples("values")
@given(recipe=st.one_of(fixed_solvers(), adaptive_solvers()))
def test_a_solver_comes_back_from_json_as_it_went_or_was_refused(recipe: Recipe) -> None:
    solver = outcome(recipe.made)
    if isinstance(solver, WindermereError):
        return
    values = json.loads(json.dumps(solver_to_dict(solver), allow_nan=False))
    if "times" in values:
        values["times"] = tuple(values["times"])
    assert solver_from_dict(values) == solver
    outcome(lambda: solver.with_precision(solver.precision))


@examples("values")
@given(recipe=st.one_of(fixed_solvers(), adaptive_solvers()), data=st.data())
def test_an_altered_solver_is_another_one_or_refused(recipe: Recipe, data: Any) -> None:
    solver = outcome(recipe.made)
    if isinstance(solver, WindermereError):
        return
    values = data.draw(altered(json.loads(json.dumps(solver_to_dict(solver)))))
    if isinstance(values, dict):
        outcome(lambda: solver_from_dict(values))


@examples("values")
@given(recipe=controllers(), start=positive, data=st.data())
def test_an_altered_state_or_controller_is_another_one_or_refused(recipe: Recipe, start: float, data: Any) -> None:
    controller: Any = outcome(recipe.made)
    if isinstance(controller, WindermereError):
        return
    state = outcome(lambda: reviewed(controller, controller.start(start), Score(value=0.9, distance=0, steps=3), 1, 1))
    if isinstance(state, WindermereError):
        return
    makers: list[tuple[Any, Any]] = [
        (controller_from_dict, controller_to_dict(controller)),
        (ControllerState.from_dict, state.to_dict()),
    ]
    for made, values in makers:
        changed = data.draw(altered(json.loads(json.dumps(values))))
        if isinstance(changed, dict):
            outcome(partial(made, changed))
    outcome(lambda: Score(value=data.draw(ODD), distance=data.draw(ODD)))
