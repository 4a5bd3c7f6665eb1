"""`odeint` and `odeint_adjoint` against torchdiffeq's own, called with the same words."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import windermere as wm
from tests.solvers.fields import DOUBLE, Network, Recorder, coupled, elementwise, some_states
from tests.torches import needs_compile
from windermere.errors import StepBudgetError, UsageError
from windermere.solvers import odeint_options

FIXED = ("euler", "midpoint", "heun2", "heun3", "rk4")
ADAPTIVE = ("dopri5", "bosh3", "fehlberg2", "adaptive_heun")
GRIDS: dict[str, dict[str, Any]] = {
    "the times themselves": {},
    "steps that end at every time": {"step_size": 0.05},
    "steps that pass over times": {"step_size": 0.07},
    "steps that pass over times, cubic": {"step_size": 0.07, "interp": "cubic"},
}
EVERY_FIXED = pytest.mark.parametrize("method", FIXED)
EVERY_ADAPTIVE = pytest.mark.parametrize("method", ADAPTIVE)
EVERY_GRID = pytest.mark.parametrize("grid", GRIDS)
EITHER_WAY = pytest.mark.parametrize("times", [(0.0, 0.15, 0.4, 1.0), (0.5, 0.3, -0.2)])


def at(*times: float, needs: bool = False) -> Tensor:
    return torch.tensor(times, dtype=DOUBLE, requires_grad=needs)


def outcome(odeint: Any, times: tuple[float, ...], **how: Any) -> tuple[Tensor, ...]:
    """States, and their gradients by the first state, the parameters and the times."""
    field, y0, t = Network(), some_states(4, 2).requires_grad_(), at(*times, needs=True)
    states = odeint(field, y0, t, **how)
    weights = some_states(*states.shape, seed=1)
    return states, *torch.autograd.grad((weights * states).sum(), [y0, *field.parameters(), t])


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...], to: float) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=to, atol=to)


@pytest.mark.parametrize("how", [{"method": "rk4"}, {"method": "euler", "options": {"step_size": 0.3}}, {"rtol": 1e-8}])
def test_derivatives_by_the_times_are_the_same_in_forward_mode(how: dict[str, Any]) -> None:
    t, field, y0 = at(0.0, 0.15, 0.4, 1.0), Network(), some_states(4, 2)

    def total(t: Tensor) -> Any:
        return wm.odeint(field, y0, t, **how).square().sum()

    along = torch.tensor([1.0, -2.0, 3.0, 4.0], dtype=DOUBLE)
    want = torch.autograd.functional.jacobian(total, t) @ along  # type: ignore[no-untyped-call]
    with forward_ad.dual_level():
        got = forward_ad.unpack_dual(total(forward_ad.make_dual(t, along))).tangent  # type: ignore[no-untyped-call]
    torch.testing.assert_close(got, want)
    if "method" in how:  # transforms do not show the numbers that adaptive steps are chosen by
        torch.testing.assert_close(torch.func.jvp(total, (t,), (along,))[1], want)
        torch.testing.assert_close(torch.func.jacfwd(total)(t) @ along, want)


@EVERY_FIXED
@EVERY_GRID
@EITHER_WAY
def test_fixed_steps_and_all_their_gradients_are_torchdiffeqs(method: str, grid: str, times: tuple[float, ...]) -> None:
    """By the times too. Where those are nodes of the steps, torchdiffeq takes the ones between the ends for the first
    time's, whose steps they are; ours have the same sum."""
    how: dict[str, Any] = {"method": method, "options": GRIDS[grid]}
    got, want = outcome(wm.odeint, times, **how), outcome(torchdiffeq.odeint, times, **how)
    assert_same(got[:-1], want[:-1], to=1e-12)
    torch.testing.assert_close(got[-1].sum(), want[-1].sum(), rtol=1e-11, atol=1e-11)
    if grid != "steps that end at every time":
        torch.testing.assert_close(got[-1], want[-1], rtol=1e-11, atol=1e-11)


@EVERY_ADAPTIVE
@EITHER_WAY
def test_adaptive_states_are_torchdiffeqs_to_the_tolerance(method: str, times: tuple[float, ...]) -> None:
    how: dict[str, Any] = {"method": method, "rtol": 1e-7, "atol": 1e-7}
    got, want = (odeint(coupled, some_states(4, 2), at(*times), **how) for odeint in (wm.odeint, torchdiffeq.odeint))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
    torch.testing.assert_close(got, truth(times), rtol=0, atol=3e-5)


def truth(times: tuple[float, ...]) -> Any:
    return wm.odeint(coupled, some_states(4, 2), at(*times), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("odeint", ["odeint", "odeint_adjoint"])
@EITHER_WAY
def test_gradients_of_dopri5_are_torchdiffeqs_to_the_tolerance(odeint: str, times: tuple[float, ...]) -> None:
    got, want = (outcome(getattr(library, odeint), times, rtol=1e-10, atol=1e-10) for library in (wm, torchdiffeq))
    assert_same(got, want, to=2e-6)


@EVERY_FIXED
@pytest.mark.parametrize("grid", ["the times themselves", "steps that end at every time"])
@EITHER_WAY
def test_an_adjoint_of_fixed_steps_is_torchdiffeqs(method: str, grid: str, times: tuple[float, ...]) -> None:
    """But for the first time's: torchdiffeq integrates df/dt, which is -<dL/dy, f> there up to the steps' error."""
    how: dict[str, Any] = {"method": method, "options": GRIDS[grid]}
    got, want = outcome(wm.odeint_adjoint, times, **how), outcome(torchdiffeq.odeint_adjoint, times, **how)
    assert_same(got[:-1], want[:-1], to=1e-12)
    torch.testing.assert_close(got[-1][1:], want[-1][1:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.5, 1.0)])
def test_the_adjoints_gradient_by_the_first_time_converges_to_that_of_the_steps(times: tuple[float, ...]) -> None:
    adjoint, steps = (
        outcome(odeint, times, method="rk4", options={"step_size": 1 / 64, "interp": "cubic"})[-1]
        for odeint in (wm.odeint_adjoint, wm.odeint)
    )
    torch.testing.assert_close(adjoint, steps, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("interp", ["linear", "cubic"])
def test_the_adjoint_is_the_gradient_of_states_between_steps(interp: str) -> None:
    how: dict[str, Any] = {"method": "rk4", "options": {"step_size": 0.07, "interp": interp}}
    adjoint, steps = (outcome(odeint, (0.0, 0.4, 1.0), **how)[:-1] for odeint in (wm.odeint_adjoint, wm.odeint))
    assert_same(adjoint, steps, to=1e-5)


@EVERY_FIXED
@pytest.mark.parametrize("grid", [grid for grid in GRIDS if "every" not in grid])
def test_gradients_by_the_times_are_those_of_finite_differences(method: str, grid: str) -> None:
    """Off the nodes: there a straight line has a corner."""

    def states(y0: Tensor, t: Tensor) -> Any:
        return wm.odeint(coupled, y0, t, method=method, options=GRIDS[grid])

    assert gradcheck(states, (some_states(2, 2).requires_grad_(), at(0.0, 0.4, 1.0, needs=True)))


@EVERY_ADAPTIVE
def test_adaptive_gradients_by_the_times_are_the_fields_values_there(method: str) -> None:
    y0, t = some_states(3, 2), at(0.0, 0.4, 1.0, needs=True)
    states = wm.odeint(coupled, y0, t, method=method, rtol=1e-7, atol=1e-7)
    for i in (1, 2):
        (by_time,) = torch.autograd.grad(states[i].sum(), t, retain_graph=True)
        now = coupled(t.detach()[i], states[i].detach()).sum()
        torch.testing.assert_close(by_time[i], now, rtol=0, atol=1e-3)
        assert by_time[3 - i] == pytest.approx(0, abs=1e-3)


def test_times_can_be_differentiated_twice() -> None:
    def states(y0: Tensor, t: Tensor) -> Any:
        return wm.odeint(elementwise, y0, t, rtol=1e-10, atol=1e-10)

    given = (some_states(2, 1).requires_grad_(), at(0.0, 0.3, 0.8, needs=True))
    assert gradcheck(states, given, atol=1e-6)
    assert gradgradcheck(states, given, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 2)])
@pytest.mark.parametrize("odeint", [wm.odeint, wm.odeint_adjoint])
def test_states_have_any_shape(shape: tuple[int, ...], odeint: Any) -> None:
    more = {"adjoint_params": ()} if odeint is wm.odeint_adjoint else {}
    states = odeint(elementwise, some_states(*shape), at(0.0, 0.5, 1.0), **more)
    assert states.shape == (3, *shape)
    assert torch.equal(states[0], some_states(*shape))


@pytest.mark.parametrize("method", [*FIXED, *ADAPTIVE])
def test_a_tuple_gives_a_tuple_of_the_same_shapes(method: str) -> None:
    y0 = (some_states(), some_states(2, 3, seed=1), some_states(4, seed=2))

    def swirl(t: Tensor, y: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return -y[0] * t, y[1] * y[0], y[2].sin()

    t = at(0.0, 0.5, 1.0)
    got, want = (odeint(swirl, y0, t, method=method, rtol=1e-7) for odeint in (wm.odeint, torchdiffeq.odeint))
    assert isinstance(got, tuple)
    for one, other, start in zip(got, want, y0, strict=True):
        assert one.shape == (3, *start.shape)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 if method in FIXED else 1e-4)


class Turn(nn.Module):
    """A complex state turns with a real speed."""

    def __init__(self) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(2.0, dtype=DOUBLE))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        assert not t.is_complex()
        return 1j * self.speed * y


@pytest.mark.parametrize("odeint", [wm.odeint, wm.odeint_adjoint, torchdiffeq.odeint])
def test_a_complex_state_is_solved_and_gives_gradients(odeint: Any) -> None:
    """torchdiffeq's own adjoint fails for one with a real parameter."""
    field, y0, t = Turn(), torch.complex(some_states(3), some_states(3, seed=1)), at(0.0, 0.5, 1.0)
    states = odeint(field, y0, t, rtol=1e-9, atol=1e-9)
    exact = y0 * torch.exp(1j * field.speed * t[:, None])
    torch.testing.assert_close(states, exact, rtol=0, atol=1e-7)
    got, want = (torch.autograd.grad(s.real.sum(), field.speed)[0] for s in (states, exact))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", [None, "euler", "fehlberg2"])
def test_a_single_time_gives_the_first_state(method: str | None) -> None:
    y0 = some_states(2, 3)
    assert torch.equal(wm.odeint(coupled, y0, at(0.5), method=method), y0[None])
    (part,) = wm.odeint(coupled, (y0,), at(0.5), method=method)
    assert torch.equal(part, y0[None])


def test_a_step_of_one_nth_takes_n_steps_and_not_one_more() -> None:
    counts = []
    for odeint in (wm.odeint, torchdiffeq.odeint):
        field = Recorder(coupled)
        odeint(field, some_states(2, 2), torch.tensor([0.0, 1.0]), method="euler", options={"step_size": 1 / 61})
        counts.append(field.calls)
    assert counts == [61, 62]


def test_times_in_float32_are_on_a_grid_that_they_miss_by_their_rounding() -> None:
    field, t = Recorder(coupled), torch.linspace(0, 1, 101)
    states = wm.odeint(field, some_states(2, 2), t, method="euler", options={"step_size": 0.01})
    assert field.calls == 100
    fine = wm.odeint(coupled, some_states(2, 2), t.double(), method="euler")
    torch.testing.assert_close(states, fine, rtol=0, atol=1e-6)


def test_times_close_together_are_a_grid_too() -> None:
    t = 1000 + torch.arange(20) * 2.0**-13  # two roundings of float32 apart
    got, want = (
        odeint(coupled, some_states(2, 2, dtype=torch.float32), t, method="midpoint")
        for odeint in (wm.odeint, torchdiffeq.odeint)
    )
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_grid_constructor_gives_the_grid_forwards_and_backwards(adjoint: bool) -> None:
    asked: list[list[float]] = []

    def squares(func: Any, y0: Tensor, t: Tensor) -> Tensor:
        asked.append(t.tolist())
        return t[0] + (t[-1] - t[0]) * torch.linspace(0, 1, 5, dtype=DOUBLE) ** 2

    found = []
    for library in (wm, torchdiffeq):
        field = Network()
        call: Callable[..., Tensor] = library.odeint_adjoint if adjoint else library.odeint
        states = call(
            field, some_states(2, 2), at(0.0, 0.5625, 1.0), method="rk4", options={"grid_constructor": squares}
        )
        found.append((states.detach(), *torch.autograd.grad(states.sum(), list(field.parameters()))))
    assert_same(found[0], found[1], to=1e-3 if adjoint else 1e-12)
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    with pytest.raises(UsageError, match=r"grid of grid_constructor goes from 0\.0 to 0\.5, but t from 0\.0 to 1\.0"):
        wm.odeint(
            coupled,
            some_states(2, 2),
            at(0, 1),
            method="euler",
            options={"grid_constructor": lambda f, y, t: at(0, 0.5)},
        )


def test_the_way_back_may_have_settings_of_its_own() -> None:
    field, y0 = Network(), some_states(4, 2)

    def gradient(**how: Any) -> Tensor:
        states = wm.odeint_adjoint(field, y0, at(0.0, 0.4, 1.0), rtol=1e-9, atol=1e-9, **how)
        return torch.autograd.grad(states.square().sum(), field.outer.weight)[0]

    exact = gradient()
    for how in (
        {"adjoint_rtol": 1e-5, "adjoint_atol": 1e-5},
        {"adjoint_method": "bosh3"},
        {"adjoint_method": "rk4", "adjoint_options": {"step_size": 0.02}},
        {"adjoint_options": {"norm": "seminorm"}},
        {"adjoint_params": tuple(field.parameters())},
    ):
        torch.testing.assert_close(gradient(**how), exact, rtol=0, atol=1e-4)
    coarse = gradient(adjoint_method="euler", adjoint_options={})  # one step between each two times
    assert float((coarse - exact).abs().max()) > 1e-3


def test_max_num_steps_is_a_budget_and_without_it_there_is_none() -> None:
    t = at(0.0, 5.0, 10.0)
    with pytest.raises(StepBudgetError, match="6 steps"):  # three between each two times
        wm.odeint(coupled, some_states(2, 2), t, options={"max_num_steps": 3})
    assert wm.odeint(coupled, some_states(2, 2), t, options={"max_num_steps": 1000}).isfinite().all()


def test_of_several_tolerances_the_tightest_counts() -> None:
    y0 = (some_states(3, 2), some_states(3, 2, seed=1))

    def calls(rtol: Any, atol: Any) -> int:
        field = Recorder(lambda t, y: (coupled(t, y[0]), coupled(t, y[1])))
        wm.odeint(field, y0, at(0.0, 1.0), rtol=rtol, atol=atol)
        return field.calls

    one = calls(1e-6, 1e-7)
    assert one == calls((1e-3, 1e-6), (torch.full((3, 2), 1e-7), 1e-2)) == calls(torch.tensor(1e-6, dtype=DOUBLE), 1e-7)
    assert one > calls(1e-3, 1e-3)


@pytest.mark.parametrize("method", [*ADAPTIVE, "tsit5"])
def test_the_default_tolerances_run_in_float32_and_end_no_further_from_the_flow(method: str) -> None:
    """But for rounding. (torchdiffeq 0.2.5 has no tsit5.)"""
    y0, t = some_states(4, 2), at(0.0, 0.3, 1.0)
    flow = torchdiffeq.odeint(coupled, y0, t, rtol=1e-12, atol=1e-12)

    def error(odeint: Any, name: str) -> float:
        states = odeint(coupled, y0.float(), t.float(), method=name)
        assert states.dtype == torch.float32
        return float((states - flow).abs().max())

    theirs = error(torchdiffeq.odeint, "dopri5" if method == "tsit5" else method)
    assert error(wm.odeint, method) < theirs + 5e-6


def test_a_tolerance_below_float32s_rounding_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    odeint_options._say.cache_clear()
    with caplog.at_level(logging.WARNING, logger="windermere"):
        for _ in range(2):
            wm.odeint(coupled, some_states(4, 2, dtype=torch.float32), at(0.0, 1.0))
            wm.odeint(coupled, some_states(4, 2), at(0.0, 1.0))
    assert [record.message for record in caplog.records] == [
        "float32 cannot resolve rtol=1e-07: windermere.odeint solves with rtol=3e-07 in its place"
    ]


def test_evaluations_are_counted() -> None:
    with wm.counting() as count:
        wm.odeint(coupled, some_states(2, 2), at(0.0, 1.0), method="rk4", options={"step_size": 0.1})
    assert count.forward == 40


@needs_compile
def test_a_compiled_function_may_call_it() -> None:
    def end(y0: Tensor) -> Tensor:
        return wm.odeint(coupled, y0 * 1.0, torch.tensor([0.0, 1.0]), method="rk4")[-1]

    compiled = torch.compile(end, backend="eager")
    torch.testing.assert_close(compiled(some_states(2, 2)), end(some_states(2, 2)))
