"""A field of one's own, a 2-32-32-2 tanh network (batch 128, one core): forward and backward, against torchdiffeq."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from benchmarks.measuring import Bar, keep, show, side_by_side

BATCH, STEPS, TOLERANCE, OUTPUTS = 128, 64, 1e-4, 101


def contenders(field: nn.Module, x: Tensor) -> dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]:
    """By name: ours, and torchdiffeq's."""
    times, adaptive = torch.tensor([0.0, 1.0]), {"method": "dopri5", "rtol": TOLERANCE, "atol": TOLERANCE}
    many = torch.linspace(0, 1, OUTPUTS)
    euler = wm.ODEBlock(field, wm.FixedStep.of("euler", steps=STEPS))
    dopri54 = wm.ODEBlock(field, wm.Adaptive("dopri54", tolerance=TOLERANCE))
    adjoint = wm.ODEBlock(field, wm.Adaptive("dopri54", tolerance=TOLERANCE), gradient="adjoint")
    series = wm.ODEBlock(field, wm.Adaptive("dopri54", tolerance=TOLERANCE), times=many.tolist(), interpolate=True)
    return {
        f"euler, {STEPS} steps": (
            lambda: euler(x),
            lambda: odeint(field, x, times, method="euler", options={"step_size": 1 / STEPS})[-1],
        ),
        "dopri54": (lambda: dopri54(x), lambda: odeint(field, x, times, **adaptive)[-1]),
        f"dopri54, {OUTPUTS} output times": (lambda: series(x), lambda: odeint(field, x, many, **adaptive)),
        "dopri54, adjoint": (lambda: adjoint(x), lambda: odeint_adjoint(field, x, times, **adaptive)[-1]),
    }


def run(*, rounds: int = 40) -> list[Bar]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tanh = nn.Tanh
    field = wm.Autonomous(nn.Sequential(nn.Linear(2, 32), tanh(), nn.Linear(32, 32), tanh(), nn.Linear(32, 2)))
    ratios = {}
    for name, pair in contenders(field, torch.randn(BATCH, 2)).items():
        ours, theirs = (solve() for solve in pair)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
        work = dict(zip(("windermere", "torchdiffeq"), map(_backward, pair), strict=True))
        seconds = side_by_side(work, rounds=rounds, clock=time.process_time)
        ratios[name] = seconds["torchdiffeq"] / seconds["windermere"]
    torch.set_num_threads(threads)
    show("A field of one's own: torchdiffeq's time over ours", {name: f"{ratio:.2f}" for name, ratio in ratios.items()})
    keep("own_field", {"torchdiffeq over windermere": ratios})
    return [
        Bar(name=f"{name}, times torchdiffeq", measured=r, limit=1, at_least=True, unit="x")
        for name, r in ratios.items()
    ]


def _backward(solve: Callable[[], Tensor]) -> Callable[[], None]:
    return lambda: solve().square().mean().backward()
