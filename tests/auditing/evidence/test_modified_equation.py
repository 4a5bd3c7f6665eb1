"""The term that a solver's steps add to the field, against what is known of it."""

from math import cos, sin
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.auditing.evidence.walks import points
from windermere.auditing.evidence.modified_equation import eulers_term, modified_equation
from windermere.errors import UsageError
from windermere.solvers.tableaus import tableau

MATRIX = torch.tensor([[0.3, 1.0], [-2.0, 0.1]], dtype=torch.float64)


def pushed(t: Tensor, z: Tensor) -> Tensor:
    """Depends on the time, which it reads as a number, where autograd does not see it."""
    return torch.tanh(z @ MATRIX) + sin(3 * float(t))


def test_eulers_term_is_half_a_step_times_the_derivative_along_the_field() -> None:
    z, start, end = points(), 0.2, 0.7
    rate = pushed(torch.tensor(start), z)
    along = (1 - torch.tanh(z @ MATRIX) ** 2) * (rate @ MATRIX) + 3 * cos(3 * start)
    torch.testing.assert_close(eulers_term(pushed, z, start, end, rate), 0.25 * along, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("method", "coefficient"), [("euler", 1 / 2), ("midpoint", 1 / 6), ("rk4", 1 / 120)])
def test_of_growth_at_rate_one_the_term_is_the_next_one_of_the_exponential(method: str, coefficient: float) -> None:
    """z' = z: a step misses h^(p + 1) / (p + 1)! z, so the term is h^p / (p + 1)! of the field."""
    h, states = 0.01, points()[None].repeat(3, 1, 1)
    found = modified_equation(lambda t, z: z, tableau(method), states, (0.0, h, 2 * h), [0, 1])
    expected = coefficient * h**found.order
    assert (found.median, found.largest) == pytest.approx((expected, expected), rel=0.02)
    assert found.points == 40


def test_backwards_in_time_the_term_is_as_large() -> None:
    states = points()[None].repeat(2, 1, 1)
    there, back = (
        modified_equation(lambda t, z: z @ MATRIX, tableau("euler"), states, times, [0])
        for times in ((0.0, 0.1), (0.0, -0.1))
    )
    assert back.largest == pytest.approx(there.largest, rel=1e-6)


def test_a_point_at_rest_is_not_divided_by() -> None:
    z = points()
    z[0] = 0.0
    found = modified_equation(lambda t, z: z + t, tableau("euler"), z[None].repeat(2, 1, 1), (0.0, 0.1), [0])
    assert 0 < found.largest < 1e3


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (lambda t, z: torch.zeros_like(z), "zero wherever a step begins"),
        (lambda t, z: torch.where(t > 0, torch.nan, 1.0) * z, "not finite near finite states"),
    ],
)
def test_a_field_that_cannot_be_compared_is_named(field: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        modified_equation(field, tableau("euler"), points()[None].repeat(2, 1, 1), (0.0, 0.1), [0])
