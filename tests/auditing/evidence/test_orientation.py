"""Determinants of step maps, against closed forms and finite differences."""

from collections.abc import Callable
from itertools import pairwise
from math import isnan

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from windermere.auditing.evidence import jacobians as module
from windermere.auditing.evidence.jacobians import jacobians
from windermere.auditing.evidence.lipschitz import lipschitz
from windermere.auditing.evidence.orientation import Orientation, step_orientation
from windermere.errors import FieldError, UsageError
from windermere.paper.architectures import ImageField, SphereField, initialise
from windermere.solvers import METHODS, FixedStep, solve
from windermere.solvers.tableaus import EULER, RK4

Field = Callable[[Tensor, Tensor], Tensor]


def rotation(t: Tensor, z: Tensor) -> Tensor:
    return torch.stack([-z[..., 1], z[..., 0]], dim=-1)


def decay(rate: float) -> Field:
    return lambda t, z: -rate * z


def sphere_field(seed: int, points: int = 2) -> nn.Module:
    return initialise(SphereField(points), seed).double()


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def walk(field: Field, z0: Tensor, method: str, steps: int) -> tuple[Tensor, list[float]]:
    trajectory = solve(field, z0, FixedStep(method, step=1 / steps), record=True).trajectory
    assert trajectory is not None
    assert isinstance(trajectory.states, Tensor)
    return trajectory.states.detach(), [float(t) for t in trajectory.times]


def one_step(field: Field, method: str, z: Tensor, h: float, start: float = 0.0) -> Orientation:
    return step_orientation(field, METHODS[method], torch.stack([z, z]), (start, start + h))


@pytest.mark.parametrize("h", [0.01, 1.0, 30.0])
def test_euler_on_a_rotation_keeps_orientation_at_any_step(h: float) -> None:
    found = one_step(rotation, "euler", points(5, 2), h)
    assert (found.negative, found.uncertain, found.points, found.dimension) == (0, 0, 5, 2)
    assert found.smallest == pytest.approx(1 + h**2)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 8])
def test_euler_past_h_k_of_one_turns_orientation_around_in_odd_dimensions_only(dimension: int) -> None:
    found = one_step(decay(3.0), "euler", points(4, dimension), 0.5)
    assert found.negative == (4 if dimension % 2 else 0)
    assert found.smallest == pytest.approx((-0.5) ** dimension)
    assert one_step(decay(1.9), "euler", points(4, dimension), 0.5).negative == 0


def test_a_flow_never_turns_orientation_around() -> None:
    """Liouville: its determinant is exp(h tr A), here met by a fine method to its accuracy."""
    matrix = points(5, 5, seed=1)
    found = one_step(lambda t, z: z @ matrix.T, "dopri54", points(3, 5), 0.02)
    assert found.negative == 0
    assert found.smallest == pytest.approx(float(torch.exp(0.02 * matrix.trace())), rel=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_euler_below_h_l_of_one_never_turns_orientation_around(seed: int) -> None:
    field = sphere_field(seed)
    states, times = walk(field, points(8, 2), "euler", 8)
    assert lipschitz(field, states, times).largest / 8 < 1
    assert step_orientation(field, EULER, states, times).negative == 0


def test_every_step_of_a_walk_is_looked_at_where_it_starts() -> None:
    """z' = -4t z, h = 1/2: Euler's factor 1 - 2t is negative from t = 1/2 on; and only there."""
    times = [0.0, 0.25, 0.75, 1.25]
    field: Field = lambda t, z: -4 * t * z  # noqa: E731
    states = points(4, 6, 1)
    expected = [1 - 4 * t * (end - t) for t, end in pairwise(times)]
    found = step_orientation(field, EULER, states, times)
    assert found.points == 18
    assert found.negative == 6 * sum(x < 0 for x in expected) == 6
    assert found.smallest == pytest.approx(min(expected))
    only = step_orientation(field, EULER, states, times, steps=[0, 1])
    assert (only.points, only.negative) == (12, 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("h", [0.5, -0.5])
def test_determinants_match_finite_differences_of_the_step(method: str, h: float) -> None:
    field: Field = lambda t, z: torch.tanh(z.roll(1, dims=-1) * (1 + t)) - z * z.roll(2, dims=-1)  # noqa: E731
    z, eps = points(3, 4), 1e-6
    grid = (0.25, 0.25 + h)
    shifts = torch.eye(4, dtype=torch.float64) * eps
    solver = FixedStep(method, step=abs(h))
    ahead, behind = (solve(field, (z[:, None] + s * shifts).reshape(12, 4), solver, grid).final for s in (1, -1))
    assert isinstance(ahead, Tensor)
    assert isinstance(behind, Tensor)
    columns = ((ahead - behind) / (2 * eps)).reshape(3, 4, 4)
    found = one_step(field, method, z, h, start=0.25)
    assert found.smallest == pytest.approx(float(torch.linalg.det(columns).min()), rel=1e-6)


@pytest.mark.parametrize("few", [1, 3, 50])
def test_jacobians_of_relu_networks_match_finite_differences_for_few_and_many_points(few: int) -> None:
    field, z, eps = sphere_field(3, points=7), points(few, 7), 1e-7
    zero = torch.tensor(0.0, dtype=torch.float64)
    shifts = torch.eye(7, dtype=torch.float64) * eps
    with torch.no_grad():
        ahead, behind = (field(zero, (z[:, None] + s * shifts).reshape(-1, 7)).reshape(few, 7, 7) for s in (1, -1))
    expected = ((ahead - behind) / (2 * eps)).mT
    torch.testing.assert_close(jacobians(lambda z: field(zero, z), z), expected, rtol=1e-6, atol=1e-6)


def test_memory_decides_the_pieces_and_not_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    field = sphere_field(0, points=5)
    states, times = walk(field, points(6, 5), "rk4", 2)
    whole = step_orientation(field, RK4, states, times)
    monkeypatch.setattr(module, "ROOM", 6000)
    pieces = step_orientation(field, RK4, states, times)
    assert pieces.points == whole.points == 12
    assert pieces.smallest == pytest.approx(whole.smallest, rel=1e-12)


def test_images_are_states_too() -> None:
    field = initialise(ImageField(2, 4), 0).double()
    z = points(2, 2, 3, 3)
    found = one_step(field, "midpoint", z, 0.1)
    full = torch.func.jacrev(lambda x: _midpoint(field, x, 0.1))(z).detach()
    own = torch.stack([full[i, ..., i, :, :, :].reshape(18, 18) for i in range(2)])
    assert found.dimension == 18
    assert found.smallest == pytest.approx(float(torch.linalg.det(own).min()), rel=1e-10)


def _midpoint(field: nn.Module, z: Tensor, h: float) -> Tensor:
    t = torch.tensor(0.0)
    middle: Tensor = z + h * field(t, z + h / 2 * field(t, z))
    return middle


def test_a_constant_field_steps_by_the_identity() -> None:
    fields: list[Field] = [lambda t, z: torch.ones_like(z), lambda t, z: nn.Parameter(torch.ones_like(z))]
    for field in fields:
        found = one_step(field, "rk4", points(3, 2), 5.0)
        assert (found.negative, found.smallest) == (0, 1.0)


def test_determinants_beyond_doubles_keep_their_sign() -> None:
    found = one_step(decay(2 - 1e-2), "euler", points(1, 301), 0.5)
    assert (found.negative, found.uncertain) == (0, 0)
    assert 0 < found.smallest < 1e-300
    assert one_step(decay(2 + 1e-2), "euler", points(1, 301), 0.5).smallest < 0
    assert 1e300 < -one_step(decay(1e3), "euler", points(1, 301), 1.0).smallest < float("inf")


def test_a_sign_that_rounding_may_have_made_does_not_count() -> None:
    """h k = 1 exactly: the step map is singular, and rank-one noise of 1e-17 must not decide."""
    direction = points(3, seed=2)
    direction = direction / direction.norm()
    projection = torch.outer(direction, direction)
    for h in np.linspace(0.9, 1.1, 5):
        found = one_step(lambda t, z, h=h: -z @ projection / h, "euler", points(7, 3), float(h))  # type: ignore[misc]
        assert found.negative == 0
        assert abs(found.smallest) < 1e-15
    assert one_step(decay(1.0), "euler", points(2, 3), 1.0).uncertain == 2
    barely = torch.tensor([[0.0, 1.0], [1.0, -(2.0**-52)]], dtype=torch.float64)  # I + h A has determinant -2^-52
    found = one_step(lambda t, z: z @ barely, "euler", points(2, 2), 1.0)
    assert found.smallest < 0
    assert (found.negative, found.uncertain) == (0, 2)


def test_more_dimensions_than_the_limit_are_skipped_with_a_reason() -> None:
    found = step_orientation(rotation, EULER, points(2, 3, 2), (0.0, 1.0), limit=1)
    assert found.skipped is not None
    assert "2 entries" in found.skipped
    assert (found.points, found.negative) == (0, 0)
    assert isnan(found.smallest)


def test_nobody_elses_gradients_are_touched_and_any_grad_mode_will_do() -> None:
    field = sphere_field(0)
    z = points(3, 2).requires_grad_()
    plain = one_step(field, "rk4", z, 0.1)
    assert z.grad is None
    assert all(p.grad is None and p.requires_grad for p in field.parameters())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert one_step(field, "rk4", points(3, 2), 0.1) == plain
            timed = one_step(lambda t, z: t * z * z, "midpoint", points(3, 2), 0.1)
    assert timed.points == 3


def test_states_that_make_no_sense_are_refused() -> None:
    bad = points(2, 3, 2)
    bad[1, 2, 0] = float("nan")
    with pytest.raises(UsageError, match=r"1 of 3 trajectories are not finite, from t = 0\.5 on"):
        step_orientation(rotation, EULER, bad, (0.0, 0.5))
    with pytest.raises(UsageError, match="2 times"):
        step_orientation(rotation, EULER, points(3, 3, 2), (0.0, 0.5))
    with pytest.raises(FieldError):
        one_step(lambda t, z: z[:, :1], "euler", points(3, 2), 0.1)


def test_a_field_whose_derivative_is_hidden_or_infinite_is_not_taken_for_a_constant_one() -> None:
    for hidden in (lambda t, z: torch.from_numpy(np.sin(z.detach().numpy())), lambda t, z: z.detach() ** 2):
        with pytest.raises(UsageError, match="cannot differentiate"):
            one_step(hidden, "euler", points(3, 2), 0.1)
    with pytest.raises(UsageError, match="derivative is not finite"):
        one_step(lambda t, z: z.sqrt(), "euler", torch.zeros(3, 2, dtype=torch.float64), 0.1)


def test_what_it_proves_and_does_not_is_said() -> None:
    assert "no flow" in Orientation.proves
    assert "prove nothing" in Orientation.limits
