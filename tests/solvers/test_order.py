"""The order of every method, measured, on a field that depends on t; and agreement with SciPy."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from tests.solvers.fields import DOUBLE, coupled, some_states
from windermere.solvers import METHODS, Adaptive, FixedStep, Tableau, solve

SPAN = 6.0
STEPS: dict[int, tuple[int, ...]] = {
    1: (768, 1152, 1536),
    2: (384, 576, 768),
    3: (384, 576, 768),
    4: (288, 384, 576),
    5: (384, 480, 600),
}
"""Numbers of steps for each order: fine enough for the slope to have settled, coarse enough to stay above rounding."""


@cache
def start() -> Tensor:
    return some_states(16, 2)


@cache
def reference() -> Tensor:
    """Below 1e-14 of the flow: five times finer than the finest grid measured, at order five."""
    return endpoint(FixedStep.of("tsit54", steps=3000, span=SPAN))


def endpoint(solver: FixedStep | Adaptive) -> Tensor:
    final = solve(coupled, start(), solver, (0.0, SPAN)).final
    assert isinstance(final, Tensor)
    return final


def distance(final: Tensor) -> float:
    return float((final - reference()).square().mean().sqrt())


def observed_order(steps: tuple[int, ...], errors: list[float]) -> float:
    return -float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda t: t.name)
def test_the_observed_order_is_the_stated_one(method: Tableau) -> None:
    steps = STEPS[method.order]
    errors = [distance(endpoint(FixedStep.of(method.name, steps=n, span=SPAN))) for n in steps]
    assert observed_order(steps, errors) == pytest.approx(method.order, abs=0.15)


def test_stages_that_all_use_the_time_of_their_steps_start_would_be_seen_as_order_one() -> None:
    """torchdyn's rk4 ignores c: this field makes that visible."""

    def careless(steps: int) -> Tensor:
        z, h, table = start(), SPAN / steps, METHODS["rk4"]
        for n in range(steps):
            t, rates = torch.tensor(n * h, dtype=DOUBLE), list[Tensor]()
            for row in table.a:
                rates.append(coupled(t, z + h * sum(a * k for a, k in zip(row, rates, strict=True))))
            z = z + h * sum(b * k for b, k in zip(table.b, rates, strict=True))
        return z

    steps = (384, 576, 768)
    assert observed_order(steps, [distance(careless(n)) for n in steps]) == pytest.approx(1, abs=0.15)


@cache
def scipys() -> Tensor:
    """DOP853 at the tightest tolerance it takes, all samples as one system."""
    end = solve_ivp(flat, (0, SPAN), start().flatten().numpy(), method="DOP853", rtol=3e-14, atol=1e-14).y[:, -1]
    return torch.tensor(end, dtype=DOUBLE).view_as(start())


def flat(t: float, z: Any) -> Any:
    """`coupled` as SciPy wants it."""
    state = torch.tensor(z, dtype=DOUBLE).view_as(start())
    return coupled(torch.tensor(t, dtype=DOUBLE), state).flatten().numpy()


def test_the_reference_that_all_methods_converge_to_is_dop853s() -> None:
    torch.testing.assert_close(reference(), scipys(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("method", "control"), [("bosh32", "sample"), ("dopri54", "batch"), ("tsit54", "sample")])
def test_a_tight_tolerance_agrees_with_dop853(method: str, control: str) -> None:
    tolerance = {"bosh32": 1e-8, "dopri54": 1e-12, "tsit54": 1e-12}[method]
    solver = Adaptive(method, tolerance=tolerance, control=control)  # type: ignore[arg-type]
    torch.testing.assert_close(endpoint(solver), scipys(), rtol=0, atol=100 * tolerance)
