"""What `odeint` and `odeint_adjoint` do not take, each in a sentence."""

from typing import Any

import pytest
import torch
import torchdiffeq

import windermere as wm
from tests.solvers.fields import Network, coupled, some_states
from tests.solvers.test_odeint import at
from windermere.errors import FieldError, UnknownNameError, UsageError

MISSING: list[tuple[dict[str, Any], str]] = [
    ({"method": "dopri8"}, r"has no 'dopri8', .*: take 'dopri5' with a tighter tolerance, or torchdiffeq's own"),
    ({"method": "implicit_adams"}, "has no 'implicit_adams', .* take 'rk4' or 'dopri5'"),
    ({"method": "fixed_adams"}, "has no 'fixed_adams'"),
    ({"method": "scipy_solver"}, "has no 'scipy_solver'"),
    ({"method": "gl4"}, "has no 'gl4'"),
    ({"method": "dopri54"}, "there is no method 'dopri54': did you mean 'dopri5'"),
    ({"event_fn": lambda t, y: y}, "has no events: leave event_fn out"),
    ({"options": {"first_step": 0.1}}, "solves with first_step=None only, not 0.1: leave the option 'first_step' out"),
    ({"options": {"max_step": 0.1}}, "solves with max_step=inf only"),
    ({"options": {"norm": torch.norm}}, "solves with norm=None only"),
    ({"options": {"dtype": torch.float32}}, "solves with dtype=torch.float64 only"),
    ({"options": {"step_size": 0.1}}, "'dopri5' has adaptive steps, and 'step_size' is .* fixed ones: leave it out"),
    ({"method": "euler", "options": {"max_num_steps": 9}}, r"'euler' has fixed steps, .* adaptive ones: .*\(dopri5,"),
    ({"options": [("step_size", 0.1)]}, "options must be a dict, not a list"),
    ({"method": "rk4", "options": {"step_sise": 0.1}}, "for 'rk4' called 'step_sise': did you mean 'step_size'"),
    ({"method": "rk4", "options": {"step_size": 0}}, "step must be positive"),
    ({"method": "rk4", "options": {"perturb": True}}, "solves with perturb=False only"),
    ({"method": "rk4", "options": {"interp": "square"}}, "no interpolation 'square'.*cubic, linear"),
    ({"method": "rk4", "options": {"step_size": 1, "grid_constructor": print}}, "are two grids: give one of them"),
    ({"rtol": "small"}, "rtol must be a number, a tensor or a tuple of these, not 'small'"),
    ({"rtol": -2.0}, "rtol and atol must be finite and not negative"),
    ({"rtol": (1e-3, torch.nan)}, r"rtol must be a number, a tensor or a tuple of these, not \(0.001, nan\)"),
    ({"options": {"jump_t": "now"}}, "jump_t must be a 1-D tensor of times, not 'now'"),
    ({"options": {"step_t": torch.ones(2, 2)}}, r"step_t must be a 1-D tensor of times, not a .* of shape \(2, 2\)"),
    ({"method": "rk4", "options": {"grid_constructor": 3}}, "grid_constructor must be a function of func, .* not 3"),
]


@pytest.mark.parametrize(("how", "sentence"), MISSING, ids=[sentence for _, sentence in MISSING])
def test_what_is_missing_is_told_in_a_sentence(how: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        wm.odeint(coupled, some_states(2, 2), at(0.0, 1.0), **how)


@pytest.mark.parametrize("t", [[0.0, 1.0], torch.tensor([0, 1]), torch.rand(2, 2), torch.tensor(1.0), torch.empty(0)])
def test_times_that_are_no_row_of_numbers_are_refused(t: Any) -> None:
    with pytest.raises(UsageError, match=r"t must be a 1-D floating tensor of times, as torch\.tensor\(\[0\.0, 1\.0\]"):
        wm.odeint(coupled, some_states(2, 2), t)


@pytest.mark.parametrize("times", [(0.0, 0.0), (0.0, 1.0, 0.5), (0.0, float("nan"))])
def test_times_that_neither_rise_nor_fall_are_refused(times: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="all rising or all falling"):
        wm.odeint(coupled, some_states(2, 2), at(*times))


@pytest.mark.parametrize("y0", [1.0, (), [1.0, 2.0]])
def test_states_that_are_no_tensors_are_refused(y0: Any) -> None:
    with pytest.raises(UsageError, match="y0 must be a tensor or a tuple of tensors"):
        wm.odeint(coupled, y0, at(0.0, 1.0))


@pytest.mark.parametrize("method", ["euler", "dopri5"])
def test_states_that_are_whole_numbers_are_refused(method: str) -> None:
    for y0 in (torch.ones(3, dtype=torch.long), (torch.ones(3), torch.ones(2, dtype=torch.bool))):
        with pytest.raises(UsageError, match=r"y0 must be real or complex numbers, not torch\.\w+: call \.float\(\)"):
            wm.odeint(coupled, y0, at(0.0, 1.0), method=method)


@pytest.mark.parametrize("name", ["callback_step", "callback_accept_step", "callback_reject_step_adjoint"])
def test_callbacks_are_refused(name: str) -> None:
    field = Network()
    setattr(field, name, lambda t, y, dt: None)
    with pytest.raises(UsageError, match=f"calls back at no step, but func has a {name}"):
        wm.odeint(field, some_states(2, 2), at(0.0, 1.0))


def test_the_adjoint_has_to_know_the_parameters() -> None:
    y0, t = some_states(2, 2), at(0.0, 1.0)
    with pytest.raises(UsageError, match=r"make func an nn\.Module, or give adjoint_params"):
        wm.odeint_adjoint(coupled, y0, t)
    with pytest.raises(UsageError, match="give adjoint_options too"):
        wm.odeint_adjoint(Network(), y0, t, method="rk4", options={"step_size": 0.1}, adjoint_method="euler")
    how: dict[str, Any] = {"adjoint_method": "dopri5", "adjoint_options": {"jump_t": at(0.5)}}
    with pytest.raises(UsageError, match="need an adaptive method forwards too"):
        wm.odeint_adjoint(Network(), y0, t, method="rk4", **how)
    field = Network()
    end = wm.odeint_adjoint(field, y0.requires_grad_(), t, adjoint_params=(field.inner.weight,))
    with pytest.raises(FieldError, match=r"depends on a tensor of shape .* that the adjoint does not know of"):
        end.sum().backward()  # type: ignore[no-untyped-call]


def test_an_unknown_method_is_torchdiffeqs_kind_of_error_too() -> None:
    for odeint in (wm.odeint, torchdiffeq.odeint):
        with pytest.raises(ValueError, match="rk5"):
            odeint(coupled, some_states(2, 2), at(0.0, 1.0), method="rk5")
    assert issubclass(UnknownNameError, ValueError)
