"""Fields as users write them, and the work that is done with them: a solve and its gradient.

`time MLP` takes the time as an input; `latent` is the field of a latent ODE with many output times; `CNF` has the exact
trace of the time MLP's Jacobian, by autograd inside of the field; `odenet` is the field of torchdiffeq's MNIST example.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import windermere as wm


class TimeMLP(nn.Module):
    def __init__(self, points: int = 2, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(points + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, points)
        )

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(torch.cat([z, t.expand(z.shape[0], 1)], dim=1))


class Latent(nn.Module):
    def __init__(self, points: int = 20, width: int = 100) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(points, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, points)
        )

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(z)


class CNF(nn.Module):
    """State: (z, log p)."""

    def __init__(self) -> None:
        super().__init__()
        self.field = TimeMLP()

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        z, _ = state
        graded = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z if z.requires_grad and graded else z.detach().requires_grad_()
            rate = self.field(t, z)
            trace = torch.zeros_like(z[:, :1])
            for i in range(z.shape[1]):
                (row,) = torch.autograd.grad(rate[:, i].sum(), z, create_graph=True)
                trace = trace + row[:, i : i + 1]
        return (rate, -trace) if graded else (rate.detach(), -trace.detach())


class ConcatConv(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels + 1, channels, 3, padding=1)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.convolution(torch.cat([torch.ones_like(z[:, :1]) * t, z], dim=1))


class OdeNet(nn.Module):
    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convolutions = nn.ModuleList(ConcatConv(channels) for _ in range(2))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        for norm, convolution in zip(self.norms[:2], self.convolutions, strict=True):
            z = convolution(t, torch.relu(norm(z)))
        return self.norms[2](z)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A field, a state, and how it is solved."""

    field: Callable[[], nn.Module]
    shape: tuple[int, ...]
    solver: wm.FixedStep | wm.Adaptive
    adjoint: bool = False
    outputs: int = 2

    def start(self, device: str) -> Any:
        z = torch.randn(*self.shape, generator=torch.Generator().manual_seed(1)).to(device)
        return (z, torch.zeros(len(z), 1, device=device)) if self.field is CNF else z

    def made(self, device: str) -> nn.Module:
        torch.manual_seed(0)
        return self.field().to(device)

    @property
    def times(self) -> list[float]:
        return torch.linspace(0, 1, self.outputs).tolist()


DOPRI = wm.Adaptive("dopri54", tolerance=1e-5)
JOBS: Mapping[str, Job] = {
    "time MLP, Euler 64": Job(field=TimeMLP, shape=(128, 2), solver=wm.FixedStep("euler", step=1 / 64)),
    "time MLP, dopri5 1e-5": Job(field=TimeMLP, shape=(128, 2), solver=DOPRI),
    "time MLP, dopri5 1e-5, adjoint": Job(field=TimeMLP, shape=(128, 2), solver=DOPRI, adjoint=True),
    "latent, 100 times": Job(
        field=Latent, shape=(50, 20), solver=wm.Adaptive("dopri54", rtol=1e-3, atol=1e-4), outputs=100
    ),
    "CNF, dopri5 1e-5, adjoint": Job(field=CNF, shape=(512, 2), solver=DOPRI, adjoint=True),
    "odenet, Euler 20": Job(field=OdeNet, shape=(128, 64, 7, 7), solver=wm.FixedStep("euler", step=1 / 20)),
    "odenet, dopri5 1e-3": Job(field=OdeNet, shape=(128, 64, 7, 7), solver=wm.Adaptive("dopri54", tolerance=1e-3)),
}


def loss_of(states: Any) -> Tensor:
    """A number that depends on all of the states."""
    parts = states if isinstance(states, tuple) else (states,)
    total: Tensor = sum((part.square().mean() for part in parts), torch.zeros((), device=parts[0].device))
    return total


def ours(
    job: Job, device: str, *, fast: bool = True, compile: bool = False, captured: bool | None = None
) -> Callable[[], list[Tensor]]:
    """The loss and the gradients of the state and of the parameters, by Windermere."""
    field, start = job.made(device), job.start(device)
    leaves = [x.requires_grad_() for x in (start if isinstance(start, tuple) else (start,))][:1]

    def work() -> list[Tensor]:
        gradient: Any = "adjoint" if job.adjoint else "backprop"
        with wm.fast_paths(fast):
            solution = wm.solve(
                field, start, job.solver, job.times, gradient=gradient, compile=compile, captured=captured
            )
            states: Any = solution.states if job.outputs > 2 else solution.final
            loss = loss_of(states)
            return [loss.detach(), *torch.autograd.grad(loss, [*leaves, *field.parameters()])]

    return work


def theirs(job: Job, device: str) -> Callable[[], list[Tensor]]:
    """The same by torchdiffeq."""
    from torchdiffeq import odeint, odeint_adjoint

    field, start = job.made(device), job.start(device)
    leaves = [x.requires_grad_() for x in (start if isinstance(start, tuple) else (start,))][:1]
    times = torch.linspace(0, 1, job.outputs, device=device)
    options: Any = (
        {"method": "euler", "options": {"step_size": job.solver.step}}
        if isinstance(job.solver, wm.FixedStep)
        else {"method": "dopri5", "rtol": job.solver.rtol, "atol": job.solver.atol}
    )
    solve = odeint_adjoint if job.adjoint else odeint

    def work() -> list[Tensor]:
        states: Any = solve(field, start, times, **options)
        if job.outputs == 2:
            states = tuple(part[-1] for part in states) if isinstance(states, tuple) else states[-1]
        loss = loss_of(states)
        return [loss.detach(), *torch.autograd.grad(loss, [*leaves, *field.parameters()])]

    return work
