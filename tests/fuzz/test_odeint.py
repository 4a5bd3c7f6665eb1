"""`odeint` in torchdiffeq's words: by fast paths and by the walk the same, or refused in a sentence."""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.fuzz.judging import assert_alike, outcome, parts_of
from tests.fuzz.profiles import examples
from tests.fuzz.strategies import ODD, mostly, problems, risen, steps, tolerances
from windermere.errors import StepBudgetError, WindermereError
from windermere.solvers import fast_paths, odeint, odeint_adjoint
from windermere.solvers.odeint_options import ADAPTIVE, ADAPTIVE_OPTIONS, FIXED, FIXED_OPTIONS, INSTEAD

ROUNDING = {torch.float64: 1e-9, torch.float32: 5e-4}
fixed_options = st.fixed_dictionaries(
    {}, optional={"step_size": mostly(steps), "interp": mostly(st.sampled_from(["linear", "cubic"]))}
)
adaptive_options = st.fixed_dictionaries({"max_num_steps": mostly(st.sampled_from([400, 50, 3]))})
odd_options = st.dictionaries(st.sampled_from([*FIXED_OPTIONS, *ADAPTIVE_OPTIONS, "stepsize", ""]), ODD, max_size=2)
moments = mostly(risen(least=1).map(lambda at: torch.tensor(at, dtype=torch.float64)))


@st.composite
def calls(draw: Any) -> dict[str, Any]:
    """What `odeint` is called with besides a field and a state."""
    fixed = draw(st.booleans())
    method = draw(mostly(st.sampled_from(sorted(FIXED if fixed else ADAPTIVE)), st.sampled_from([*INSTEAD, None, 3])))
    options = draw(mostly(fixed_options if fixed else adaptive_options, st.one_of(odd_options, ODD), every=6))
    floors = st.sampled_from([1e-3, 1e-4, 1e-6])
    if not fixed and not (isinstance(options, dict) and "max_num_steps" in options):
        # Without a budget of steps, torchdiffeq's default of 2^31, a fine tolerance may take millions of them.
        return {"method": method, "options": options, "rtol": draw(floors), "atol": draw(floors)}
    return {
        "method": method,
        "options": options,
        "rtol": draw(mostly(st.one_of(floors, tolerances))),
        "atol": draw(mostly(st.one_of(floors, st.just(1e-9)))),
    }


def largest_of(*tolerances: Any) -> float:
    """Each is a number, a word for one, or several numbers."""
    return max(float(np.asarray(each, dtype=np.float64).max()) for each in tolerances)


@examples("odeint")
@given(problem=problems(), t=moments, named=calls(), adjoint=st.booleans())
def test_a_call_is_answered_alike_by_every_path_or_refused(
    problem: Any, t: Any, named: dict[str, Any], adjoint: bool
) -> None:
    field, z = problem
    call: Any = odeint_adjoint if adjoint and isinstance(field, nn.Module) else odeint

    def by(fast: bool) -> Any:
        with fast_paths(fast), torch.no_grad():
            return outcome(lambda: call(field, z, t, **named))

    fast, slow = by(True), by(False)
    adaptive = named["method"] not in FIXED
    if adaptive and [isinstance(each, StepBudgetError) for each in (fast, slow)].count(True) == 1:
        return  # rounding decides whether the last step that is allowed reaches the end
    assert type(fast) is type(slow), (fast, slow)
    if isinstance(slow, WindermereError):
        return
    if adaptive and max(float(part.detach().abs().max()) for part in parts_of(z)) > 10:
        return  # where a sine turns many times, errors within the tolerance grow beyond it
    assert [len(part) for part in parts_of(slow)] == [len(t)] * len(parts_of(slow))
    dtype = parts_of(slow)[0].dtype
    largest = max(float(part.abs().max()) for part in parts_of(slow))
    loose = 0.0 if not adaptive or len(t) == 1 else 100 * largest_of(named["rtol"], named["atol"])
    assert_alike(fast, slow, rtol=ROUNDING[dtype] + loose, atol=ROUNDING[dtype] * largest + loose)


@examples("odeint")
@given(problem=problems(), times=risen(least=2), method=st.sampled_from(sorted(FIXED)), step=steps)
def test_the_last_state_does_not_depend_on_the_times_passed(
    problem: Any, times: tuple[float, ...], method: str, step: float
) -> None:
    """Fixed steps go over times that lie between them."""
    field, z = problem

    def end(*at: float) -> Any:
        t = torch.tensor(at, dtype=torch.float64)
        return outcome(lambda: odeint(field, z, t, method=method, options={"step_size": step}))

    with torch.no_grad():
        one, other = end(*times), end(times[0], times[-1])
    assert type(one) is type(other), (one, other)
    if isinstance(one, WindermereError):
        return
    for some, direct in zip(parts_of(one), parts_of(other), strict=True):
        last: tuple[Tensor, Tensor] = (some[-1], direct[-1])
        torch.testing.assert_close(*last, rtol=ROUNDING[some.dtype], atol=ROUNDING[some.dtype], equal_nan=True)
