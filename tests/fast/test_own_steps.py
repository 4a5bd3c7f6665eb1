"""Samples with steps of their own in C: control="sample" and times of each sample, against PyTorch step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.fields import KINDS, Embedded, Pieces, Squashed, WithTime, made
from tests.fast.spheres import DOUBLE, assert_same
from tests.fast.test_rows import state, together

SAMPLES = 19


def solver(method: str, tolerance: float) -> wm.Adaptive:
    return wm.Adaptive(method, tolerance=tolerance, control="sample")


def own_times() -> Any:
    """Of each sample: rising and falling ones, some that stand still at their end, and one that does so from its
    start."""
    rows = np.sort(np.random.default_rng(0).uniform(0, 2, (SAMPLES, 4)), axis=1)
    rows[3, 2:], rows[4, 3], rows[5], rows[6] = rows[3, 1], rows[4, 2], rows[5, ::-1].copy(), 0.5
    return rows


WAYS: list[tuple[wm.Adaptive, Any, bool | None]] = [
    (solver("dopri54", 1e-5), (0.0, 1.0), None),
    (solver("fehlberg21", 1e-3), (1.0, -0.5), None),
    (solver("dopri54", 1e-5), (0.0, 0.3, 0.31, 1.0), None),
    (solver("fehlberg21", 1e-3), (0.0, 0.3, 0.31, 1.0), False),
    (solver("bosh32", 1e-6), (1.0, 0.31, 0.3, -1.0), None),
    (solver("bosh32", 1e-6), (1.0, 0.31, 0.3, -1.0), False),
    *((solver(m, 1e-4), own_times(), interpolate) for m in ("dopri54", "fehlberg21") for interpolate in (None, False)),
]


TAKING_COLUMNS = [(kind, widths) for kind, widths in KINDS if kind not in (Squashed, Embedded)]
"""The others want a single time."""


def uneven(z: Any) -> Any:
    """The same state, with samples that move at different speeds."""
    parts = tuple(
        (2 * p.detach() * torch.linspace(0, 1, len(p), dtype=p.dtype).unsqueeze(1)).requires_grad_()
        for p in ((z,) if isinstance(z, Tensor) else z)
    )
    return parts if len(parts) > 1 else parts[0]


def found(field: Any, z: Any, by: wm.Adaptive, times: Any, *, fast: bool, **named: Any) -> tuple[list[Tensor], Any]:
    """The states and their gradients, and what was counted."""
    wanted = [*((z,) if isinstance(z, Tensor) else z), *field.parameters()]
    with wm.fast_paths(fast), wm.counting() as count:
        solution = wm.solve(field, z, by, times, **named)
        states = together(solution.states)
        weight = torch.cos(torch.arange(states.numel(), dtype=states.dtype)).view_as(states)
        gradients = torch.autograd.grad((weight * states).sum(), wanted, allow_unused=True)
    own = [np.asarray(n).tolist() for n in vars(solution.stats).values()]
    return [states.detach(), *(torch.zeros(()) if g is None else g for g in gradients)], (own, vars(count))


def assert_as_step_by_step(field: Any, z: Any, by: wm.Adaptive, times: Any = (0.0, 1.0), **named: Any) -> Any:
    """Where a field has kinks, what rounding does to steps goes on."""
    (mine, cost), (theirs, slow) = (found(field, z, by, times, fast=fast, **named) for fast in (True, False))
    assert cost == slow
    assert_same(mine, theirs, 1e-9 if isinstance(field, Pieces) else 1e-11)
    return cost[0]


@pytest.mark.parametrize(("by", "times", "interpolate"), WAYS, ids=range(len(WAYS)))
@pytest.mark.parametrize(("kind", "widths"), TAKING_COLUMNS)
def test_samples_with_steps_of_their_own_are_solved_as_step_by_step(
    kind: Callable[[], nn.Module],
    widths: tuple[int, ...],
    by: wm.Adaptive,
    times: Any,
    interpolate: bool | None,
    taken: list[str],
) -> None:
    field, z = made(kind), uneven(state(widths, SAMPLES))
    assert_as_step_by_step(field, z, by, times, interpolate=interpolate)
    assert {"adapt_samples", "back"} == set(taken)


class Kicked(nn.Module):
    """A field that is fast for a while, another one for each sample, so that steps are rejected."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(9.0, dtype=DOUBLE))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        kick = torch.exp(-60 * (t - 0.5 - 0.3 * z[:, 1:]) ** 2)
        return torch.cat([torch.sin(self.strength * kick * z[:, :1]) - z[:, :1], 0 * z[:, :1]], dim=1)


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.45, 0.55, 1.0)])
@pytest.mark.parametrize(("method", "tolerance"), [("dopri54", 1e-3), ("fehlberg21", 1e-4), ("bosh32", 1e-3)])
def test_samples_whose_steps_are_rejected_stay_while_others_go_on(
    method: str, tolerance: float, times: Any, taken: list[str]
) -> None:
    evaluations, accepted, rejected = assert_as_step_by_step(
        Kicked(), uneven(state((2,), SAMPLES)), solver(method, tolerance), times
    )
    assert taken[-1] == "back"
    assert 0 < np.count_nonzero(rejected) < SAMPLES
    assert len(set(accepted)) > 1
    assert len(set(evaluations)) > 1


@pytest.mark.parametrize("samples", [1, 2, 8, 9, 33])
def test_any_number_of_samples_may_have_steps_of_their_own(samples: int, taken: list[str]) -> None:
    assert_as_step_by_step(made(WithTime), uneven(state((2,), samples)), solver("dopri54", 1e-4))
    assert taken == ["adapt_samples", "back"]


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.3, 1.0), own_times()], ids=["ends", "between", "own"])
@pytest.mark.parametrize("interpolate", [None, False])
def test_their_gradients_can_be_differentiated_again(times: Any, interpolate: Any, taken: list[str]) -> None:
    results = []
    for fast in (True, False):
        field, z = made(WithTime), uneven(state((2,), SAMPLES))
        own = [z, *field.parameters()]
        with wm.fast_paths(fast):
            states: Any = wm.solve(field, z, solver("dopri54", 1e-4), times, interpolate=interpolate).states
            first = torch.autograd.grad(states.square().sum(), own, create_graph=True)
            total = torch.stack([g.square().sum() for g in first]).sum()
            results.append([*torch.autograd.grad(total, own)])
    assert_same(results[0], results[1])
    assert taken[0] == "adapt_samples"


def test_in_single_precision_they_are_as_good_as_pytorchs(taken: list[str]) -> None:
    z = uneven(state((2,), SAMPLES))
    exact, _ = found(made(WithTime), z, solver("dopri54", 1e-4), own_times(), fast=False)
    low = z.detach().float().requires_grad_()
    mine, _ = found(made(WithTime).float(), low, solver("dopri54", 1e-4), own_times(), fast=True)
    for one, other in zip(mine, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
    assert taken == ["adapt_samples", "back"]


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_other_gradients_of_theirs_are_as_step_by_step(gradient: Any) -> None:
    z = uneven(state((2,), SAMPLES))
    assert_as_step_by_step(made(WithTime), z, solver("dopri54", 1e-4), (0.0, 0.4, 1.0), gradient=gradient)


def test_without_gradients_they_are_the_same(taken: list[str]) -> None:
    field, z = made(WithTime), uneven(state((2,), SAMPLES)).detach()
    ends = []
    for fast in (True, False):
        with torch.no_grad(), wm.fast_paths(fast):
            ends.append(together(wm.solve(field, z, solver("fehlberg21", 1e-4), own_times()).states))
    assert_same(ends[:1], ends[1:])
    assert taken == ["adapt_samples"]


class Looks(nn.Module):
    """It does something else where each sample has a time of its own."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.sin(z) * t if t.ndim else torch.cos(z) - t


def test_what_a_field_does_with_one_time_for_all_says_nothing_of_times_for_each(taken: list[str]) -> None:
    field, z = Looks(), state((2,), 5)
    for by in (wm.Adaptive("dopri54", tolerance=1e-4), solver("dopri54", 1e-4), wm.Adaptive("dopri54", tolerance=1e-4)):
        assert_as_step_by_step(field, z, by)
    assert taken == ["adapt", "back", "adapt_samples", "back", "adapt", "back"]


def outcome(field: Callable[[Tensor, Tensor], Tensor], z: Tensor, fast: bool, **named: Any) -> str:
    """What is said to be wrong."""
    with wm.fast_paths(fast), pytest.raises((wm.errors.SolverError, RuntimeError)) as raised:
        wm.solve(field, z, wm.Adaptive("dopri54", tolerance=1e-4, control="sample", **named))
    return f"{raised.type.__name__}: {raised.value}"


WRONG: list[tuple[Callable[[Tensor, Tensor], Tensor], dict[str, Any]]] = [
    (lambda t, z: z * z, {}),
    (lambda t, z: torch.exp(20 * z), {}),
    (lambda t, z: torch.sin(50 * t) * z, {"max_steps": 4}),
    (lambda t, z: z.log(), {}),
    (lambda t, z: z * t.reshape(()), {}),
]
"""Fields that blow up, take too many steps, are not finite, or do not take a time for each sample."""


@pytest.mark.parametrize(("field", "named"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_one_of_them_is_said_as_step_by_step(
    field: Callable[[Tensor, Tensor], Tensor], named: dict[str, Any]
) -> None:
    z = torch.linspace(-2, 2, 10, dtype=DOUBLE).reshape(5, 2)
    assert outcome(field, z, True, **named) == outcome(field, z, False, **named)
