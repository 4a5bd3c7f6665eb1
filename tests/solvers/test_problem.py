"""Tests of `Problem.but`, a problem with some changes."""

import pytest
import torch

from windermere.solvers import Adaptive, FixedStep, Problem
from windermere.solvers.layout import lay_out


def problem() -> Problem:
    z = torch.ones(3, 2)
    layout = lay_out(z, members=None, samples=False)
    return Problem(lambda t, z: z, lambda t, z: z, None, z, layout, (FixedStep("euler", step=0.5),), (0.0, 1.0))


def test_what_was_derived_of_a_problem_is_derived_anew_of_a_changed_one() -> None:
    one = problem()
    assert (one.tableau.stages, one.adaptive, int(one.grid.taken)) == (1, (), 2)
    other = one.but(solvers=(Adaptive("dopri54", tolerance=1e-3),))
    assert (other.tableau.stages, other.adaptive) == (7, other.solvers)
    assert other.z0 is one.z0
    assert one.tableau.stages == 1


def test_a_change_of_something_that_a_problem_does_not_have_is_an_error() -> None:
    with pytest.raises(TypeError, match="no tolerance"):
        problem().but(tolerance=1.0)
