"""Fields as users write them, solved in one kernel, against PyTorch step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.fields import KINDS, Hamiltonian, Likelihood, WithTime, made
from tests.fast.layers import SMOOTH
from tests.fast.spheres import DOUBLE, assert_same
from tests.fast.test_rows import SOLVES, solved, state, together
from windermere.solvers import paths


def on(device: str, given: Any) -> Any:
    """The same on a device, as a start."""
    parts = tuple(p.detach().to(device).requires_grad_() for p in ((given,) if isinstance(given, Tensor) else given))
    return parts if len(parts) > 1 else parts[0]


def assert_as_step_by_step(field: Any, z: Any, solver: Any, **named: Any) -> None:
    (found, cost), (wanted, slow) = (solved(field, z, solver, fast=fast, **named) for fast in (True, False))
    assert cost == slow
    assert_same(found, wanted)


@pytest.mark.parametrize(("solver", "named"), SOLVES, ids=lambda x: str(x)[:60])
@pytest.mark.parametrize(("kind", "widths"), KINDS)
def test_a_solve_and_its_gradients_are_those_of_pytorch_step_by_step(
    kind: Callable[[], nn.Module], widths: tuple[int, ...], solver: Any, named: Any, device: str, launched: list[str]
) -> None:
    assert_as_step_by_step(made(kind).to(device), on(device, state(widths)), solver, **named)
    way = "adapt" if isinstance(solver, wm.Adaptive) else "there"
    back = ["adapt", "gather"] * (len(named.get("times", (0, 1))) - 1) if "gradient" in named else ["back", "gather"]
    assert launched == [way, *back]
