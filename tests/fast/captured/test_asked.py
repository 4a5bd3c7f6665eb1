"""`captured=True` asks for a capture, and says why there is none; False does without. And whatever goes wrong in a
captured solve is told in the words of an uncaptured one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.captured import odd_fields
from tests.fast.captured.fields import TimeMLP
from tests.fast.captured.solving import Way, assert_same, outcome, solve, solve_once
from windermere.errors import UsageError
from windermere.fast.captured.path import CapturedSteps

RK4 = wm.FixedStep("rk4", step=1 / 3)
BOSH = wm.Adaptive("bosh32", tolerance=1e-3)


def test_what_was_asked_for_is_done_at_once(path: CapturedSteps, device: str) -> None:
    path.after = 1
    field, z = TimeMLP().to(device), torch.ones(3, 2, device=device)
    found = solve(field, z, RK4, captured=True).final
    assert path.shelf.captures
    torch.testing.assert_close(found, solve(field, z, RK4, captured=False).final)


def test_compiled_steps_are_captured_on_a_gpu_when_asked_for(path: CapturedSteps, device: str) -> None:
    if device == "cpu":
        pytest.skip("a compiled field computes in kernels of its own, which no tape takes down")
    field, z = TimeMLP().to(device), torch.ones(3, 2, device=device, requires_grad=True)
    found = []
    for options in ({"captured": True, "compile": True}, {"captured": False}):
        steps = wm.FixedStep("euler", step=1 / 16)
        found.append(torch.autograd.grad(solve(field, z, steps, **options).final.sum(), [z, *field.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_block_passes_it_on(path: CapturedSteps, device: str) -> None:
    z = torch.ones(3, 2, device=device)
    for times in ((0, 1), (0, 0.5, 1)):
        for captured in (False, True):
            block = wm.ODEBlock(TimeMLP(), RK4, times=times, captured=captured).to(device)
            block(z)
            assert bool(path.shelf.captures) == captured
        assert "captured=True" in repr(block)
        path.shelf.clear()


def test_false_never_captures(path: CapturedSteps, device: str) -> None:
    for gradient in ("backprop", "checkpoint", "adjoint"):
        for solver in (RK4, BOSH):
            solve(TimeMLP().to(device), torch.ones(3, 2, device=device), solver, gradient=gradient, captured=False)
    assert not path.shelf.known


def hidden() -> Any:
    weight = nn.Parameter(torch.ones(2))
    return lambda t, z: odd_fields.Scale.apply(z, weight)  # type: ignore[no-untyped-call]


REASONS: dict[str, tuple[Callable[[], Any], str]] = {
    "counter": (odd_fields.Counter, "a call changes the field itself"),
    "list": (odd_fields.Listing, "a call changes the field itself"),
    "buffer": (odd_fields.Writing, "it changes a tensor in place"),
    "noise": (odd_fields.Noise, "it draws random numbers"),
    "time": (odd_fields.ReadsTime, "the host reads numbers"),
    "branch": (odd_fields.Branches, "the host reads numbers"),
    "shapes": (odd_fields.Shapes, "the host reads numbers"),
    "hook": (lambda: odd_fields.hooked("register_forward_hook"), "it has hooks"),
    "prints": (lambda: odd_fields.prints, "it calls print"),
    "generator": (odd_fields.Generating, "it holds a range_iterator, which cannot be looked into"),
    "hidden": (hidden, "hands a tensor of its own to a function that PyTorch does not show|on a tensor of shape"),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(2)), "it has batch norm in training mode"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_refusal_gives_its_reason(name: str, path: CapturedSteps, device: str) -> None:
    make, reason = REASONS[name]
    with torch.device(device):
        field = make()
    for _ in range(2):
        with pytest.raises(UsageError, match=f"^captured=True, but this solve cannot be captured: .*({reason})"):
            solve(field, torch.ones(3, 2, device=device), RK4, captured=True)


def test_so_does_that_of_a_cpu() -> None:
    with pytest.raises(UsageError, match="captured steps need a GPU"):
        solve(wm.Autonomous(nn.Linear(2, 2)), torch.ones(3, 2), RK4, captured=True)


def test_and_where_fast_paths_are_off(path: CapturedSteps, device: str) -> None:
    z = torch.ones(3, 2, device=device)
    with wm.fast_paths(False), pytest.raises(UsageError, match="fast paths are turned off"):
        solve(TimeMLP().to(device), z, RK4, captured=True)
    with torch.autocast(device, torch.bfloat16), pytest.raises(UsageError, match="autocast"):
        solve(TimeMLP().to(device), z, RK4, captured=True)
    with pytest.raises(UsageError, match="every step is to be recorded"):
        solve(TimeMLP().to(device), z, RK4, captured=True, record=True)


def explodes(t: Tensor, z: Tensor) -> Tensor:
    return z**2


def jumps(t: Tensor, z: Tensor) -> Tensor:
    return torch.where(t < 0.5, torch.ones_like(z), 1e6 * torch.sign(torch.sin(1e6 * z)))


def blows(t: Tensor, z: Tensor) -> Tensor:
    return torch.where(t < 0.5, z, z / 0.0 * 0.0)


TROUBLE = {
    "NaN in fixed steps": (blows, Way(RK4)),
    "NaN in the state": (blows, Way(BOSH)),
    "overflow": (lambda t, z: torch.exp(1e3 * z), Way(wm.FixedStep("euler", step=1 / 8))),
    "vanishing step": (explodes, Way(BOSH, (0.0, 5.0))),
    "budget": (jumps, Way(wm.Adaptive("bosh32", tolerance=1e-6, max_steps=20))),
    "budget of landings": (
        lambda t, z: -z,
        Way(wm.Adaptive("bosh32", tolerance=1e-2, max_steps=3), tuple(range(9)), {"interpolate": False}),
    ),
    "tolerance": (lambda t, z: -z, Way(wm.Adaptive("dopri54", tolerance=1e-17))),
    "on the way back": (explodes, Way(BOSH, (0.0, 0.99), {"gradient": "adjoint"})),
    "by sample": (explodes, Way(wm.Adaptive("bosh32", tolerance=1e-3, control="sample"), (0.0, 5.0))),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_is_told_in_the_same_words_and_counted(name: str, path: CapturedSteps, device: str) -> None:
    field, way = TROUBLE[name]
    z = torch.tensor([[1.0, 0.5], [0.25, -1.0]], device=device, dtype=torch.float64)

    def told() -> Any:
        with wm.counting() as count:
            return outcome(lambda: solve_once(field, z, way, ())), count

    found = [told(), told()]
    with wm.fast_paths(False):
        wanted = told()
    for mine in found:
        assert_same(mine[0], wanted[0])
        assert mine[1] == wanted[1]
    assert path.shelf.captures


def test_a_time_that_needs_a_gradient_is_no_matter(path: CapturedSteps, device: str) -> None:
    """A field may ask for derivatives by the time: it gets a tensor of its own."""

    def field(t: Tensor, z: Tensor) -> Any:
        with torch.enable_grad():
            t = t.detach().requires_grad_()
            (slope,) = torch.autograd.grad(torch.sin(t), t)
        return z * slope

    found = [solve(field, torch.ones(3, 2, device=device), RK4).final for _ in range(2)]
    assert path.shelf.captures
    with wm.fast_paths(False):
        torch.testing.assert_close(found[1], solve(field, torch.ones(3, 2, device=device), RK4).final)
