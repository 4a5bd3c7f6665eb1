"""Stability regions and eigenvalues, against the known ones."""

from fractions import Fraction
from math import factorial, isnan, pi, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.auditing.evidence.stability import Stability, amplification, stability, stability_polynomial
from windermere.errors import UsageError
from windermere.paper.architectures import SphereField, initialise
from windermere.solvers import METHODS, FixedStep, solve
from windermere.solvers.tableaus import BOSH32, DOPRI54, EULER, FEHLBERG21, HEUN, MIDPOINT, RK4, RK4_38, Tableau


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(t: Tensor, z: Tensor) -> Tensor:
    return torch.stack([-z[..., 1], z[..., 0]], dim=-1)


@pytest.mark.parametrize(
    ("tableau", "expected"),
    [
        (EULER, [1, 1]),
        (MIDPOINT, [1, 1, 1 / 2]),
        (HEUN, [1, 1, 1 / 2]),
        (FEHLBERG21, [1, 1, 1 / 2, float(Fraction(255, 256 * 512 * 2))]),
        (BOSH32, [1, 1, 1 / 2, 1 / 6]),
        (RK4, [1, 1, 1 / 2, 1 / 6, 1 / 24]),
        (RK4_38, [1, 1, 1 / 2, 1 / 6, 1 / 24]),
        (DOPRI54, [1, 1, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 600]),
    ],
)
def test_stability_polynomials_are_the_known_ones(tableau: Tableau, expected: list[float]) -> None:
    assert stability_polynomial(tableau) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("tableau", METHODS.values(), ids=str)
def test_a_stability_polynomial_is_the_exponential_up_to_the_methods_order(tableau: Tableau) -> None:
    known = [1 / factorial(k) for k in range(tableau.order + 1)]
    assert stability_polynomial(tableau)[: tableau.order + 1] == pytest.approx(known, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_the_solver_multiplies_by_the_polynomial(method: str) -> None:
    z0 = torch.tensor([[1.0]], dtype=torch.float64)
    final = solve(lambda t, z: -1.7 * z, z0, FixedStep(method, step=1.0)).final
    expected = sum(c * (-1.7) ** k for k, c in enumerate(stability_polynomial(METHODS[method])))
    assert float(final) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("tableau", "boundary"),
    [(EULER, -2.0), (MIDPOINT, -2.0), (BOSH32, -2.512745327), (RK4, -2.785293563), (RK4, 2j * sqrt(2))],
)
def test_the_regions_boundary_lies_where_it_is_known_to(tableau: Tableau, boundary: complex) -> None:
    at = torch.tensor([(1 - 1e-6) * boundary, boundary, (1 + 1e-6) * boundary], dtype=torch.complex128)
    inside, on, outside = amplification(tableau, at).tolist()
    assert inside < 1 < outside
    assert on == pytest.approx(1.0, abs=1e-7)


def test_eulers_region_is_the_disc_around_minus_one() -> None:
    angle = torch.linspace(0, 2 * pi, 50, dtype=torch.float64)
    circle = torch.polar(torch.ones_like(angle), angle) - 1
    torch.testing.assert_close(amplification(EULER, circle), torch.ones_like(angle))


def test_a_mode_that_a_step_only_turns_over_does_not_grow() -> None:
    """h lambda = -2, on the boundary of Euler's region."""
    found = stability(lambda t, z: -10 * z, EULER, points(1, 3, 2), (0.0,), 0.2)
    assert (found.outside, found.fastest) == (0.0, 2.0)


@pytest.mark.parametrize(("tableau", "critical"), [(EULER, 2.0), (MIDPOINT, 2.0), (RK4, 2.785293563)])
@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_stiff_decaying_mode_leaves_the_region_past_the_critical_step(
    tableau: Tableau, critical: float, direction: float
) -> None:
    rates = direction * torch.tensor([-10.0, -1.0], dtype=torch.float64)
    for factor, share in ((0.999, 0.0), (1.001, 0.5)):
        h = direction * factor * critical / 10
        found = stability(lambda t, z: z * rates, tableau, points(2, 3, 2), (0.0, 1.0), h)
        assert found.outside == share
        assert found.fastest == pytest.approx(factor * critical)
        assert found.points == 6


def test_only_decaying_modes_can_be_made_to_grow() -> None:
    """Under Euler a rotation grows and so does growth itself, but neither decays in the flow: none is outside."""
    assert stability(rotation, EULER, points(1, 3, 2), (0.0,), 0.5).outside == 0
    assert stability(lambda t, z: 5 * z, EULER, points(1, 3, 2), (0.0,), 0.5).outside == 0
    assert stability(lambda t, z: rotation(t, z) - 0.1 * z, EULER, points(1, 3, 2), (0.0,), 0.5).outside == 1
    assert stability(lambda t, z: rotation(t, z) - 0.1 * z, RK4, points(1, 3, 2), (0.0,), 0.5).outside == 0


def learned(method: str, rate: complex, h: float) -> Tensor:
    """A linear field [2, 2] that grows, and whose step with this method is the exact step of a decaying rate: a perfect
    fit, wherever only the method's steps are looked at."""
    misses = np.array(stability_polynomial(METHODS[method]), complex)
    misses[0] -= np.exp(h * rate)
    grows = max((z for z in np.roots(misses[::-1]) if z.real > 0), key=lambda z: float(z.real)) / h
    return torch.tensor([[grows.real, -grows.imag], [grows.imag, grows.real]], dtype=torch.float64)


@pytest.mark.parametrize("method", ["rk4", "rk4_38", "bosh32"])
def test_a_damped_oscillator_learned_as_a_growing_one_has_all_its_growth_damped(method: str) -> None:
    rate, h = -0.05 + 1.5j, 1.0
    matrix = learned(method, rate, h)
    assert float(torch.linalg.eigvals(matrix).real.min()) > 0
    start = points(5, 2)
    decay = torch.tensor([[rate.real, -rate.imag], [rate.imag, rate.real]], dtype=torch.float64)
    own = solve(lambda t, z: z @ matrix.T, start, FixedStep(method, step=h), times=(0.0, h)).final
    torch.testing.assert_close(own, start @ torch.linalg.matrix_exp(h * decay).T)  # indeed the damped one's step
    found = stability(lambda t, z: z @ matrix.T, METHODS[method], start[None], (0.0,), h)
    assert (found.outside, found.damped) == (0.0, 1.0)
    finer = stability(lambda t, z: z @ matrix.T, METHODS[method], start[None], (0.0,), h / 16)
    assert (finer.outside, finer.damped) == (0.0, 0.0)


def test_an_audit_tells_of_growth_that_the_training_solver_damps() -> None:
    linear = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(learned("rk4", -0.05 + 1.5j, 1.0))
    block = wm.ODEBlock(wm.Autonomous(linear), wm.FixedStep("rk4", step=1.0), times=(0.0, 8.0))
    inputs = points(40, 2).float()
    (evidence,) = [e for e in wm.audit(block, (inputs, (inputs[:, 0] > 0).long())).evidence if e.name == "stability"]
    assert evidence.numbers["damped"] == 1.0
    assert "0.0% of eigenvalues belong to decaying modes that the method makes grow, 100.0% to growing" in (
        evidence.finding
    )


@pytest.mark.parametrize("tableau", METHODS.values(), ids=str)
@pytest.mark.parametrize("h", [0.3, -0.3])
def test_at_an_ordinary_step_modes_that_decay_turn_and_grow_go_on_doing_so(tableau: Tableau, h: float) -> None:
    rates = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)
    found = stability(lambda t, z: z * rates, tableau, points(1, 3, 3), (0.0,), h)
    assert (found.outside, found.damped) == (0.0, 0.0)
    turning = stability(rotation, tableau, points(1, 3, 2), (0.0,), h)
    assert (turning.outside, turning.damped) == (0.0, 0.0)


def test_fields_that_depend_on_time_are_asked_at_their_times() -> None:
    found = stability(lambda t, z: -t * z, EULER, points(4, 5, 2), (1.0, 2.0, 3.0, 4.0), 0.9)
    assert found.outside == 0.5
    assert found.fastest == pytest.approx(3.6)


def test_eigenvalues_are_those_of_the_fields_jacobian() -> None:
    matrix = points(7, 7, seed=1)
    found = stability(lambda t, z: z @ matrix.T, RK4, points(1, 2, 7), (0.0,), 0.25)
    assert found.fastest == pytest.approx(0.25 * float(torch.linalg.eigvals(matrix).abs().max()))


def test_a_constant_field_is_stable_at_any_step() -> None:
    found = stability(lambda t, z: torch.ones_like(z), EULER, points(1, 2, 2), (0.0,), 100.0)
    assert (found.outside, found.fastest) == (0.0, 0.0)


def test_more_dimensions_than_the_limit_are_skipped_with_a_reason() -> None:
    found = stability(lambda t, z: z, EULER, points(1, 2, 65), (0.0,), 0.1)
    assert found.skipped is not None
    assert "65 entries" in found.skipped
    assert found.points == 0
    assert isnan(found.outside)
    assert isnan(found.damped)


def test_nobody_elses_gradients_are_touched_and_any_grad_mode_will_do() -> None:
    field = initialise(SphereField(2), 0).double()
    plain = stability(field, RK4, points(1, 4, 2), (0.0,), 0.1)
    assert all(p.grad is None for p in field.parameters())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert stability(field, RK4, points(1, 4, 2), (0.0,), 0.1) == plain


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="not finite"):
        stability(rotation, EULER, torch.full((1, 2, 2), torch.nan, dtype=torch.float64), (0.0,), 0.1)


def test_what_it_proves_and_does_not_is_said() -> None:
    assert "stability region" in Stability.proves
    assert "damps what the linearised flow lets grow" in Stability.proves
    assert "linearised" in Stability.limits
