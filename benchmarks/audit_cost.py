"""What an audit costs: evaluations of the field for each of 200 samples, by phase, of models with 2 Euler steps.

`odenet` is the network of torchdiffeq's MNIST example on real images, once with an `ODEBlock` and once as its users
write it; `tanh MLP` classifies Sphere2. Both are trained briefly: that is enough to count. Every call of the field
counts, also those that find out which solves there are, and those of the evidence.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from benchmarks.users_fields import OdeNet, TimeMLP
from windermere.auditing import AuditProgress
from windermere.paper import data

EULER = wm.FixedStep.of("euler", steps=2)
SAMPLES, ITERATIONS, BATCH = 200, 100, 64
MOST = 150
"""Evaluations a sample: what the odenet's audit may take."""


class WithTorchdiffeq(nn.Module):
    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, z: Tensor) -> Any:
        return odeint(self.field, z, z.new_tensor([0.0, 1.0]), method="euler", options={"step_size": EULER.step})[-1]


def with_block(field: nn.Module) -> nn.Module:
    return wm.ODEBlock(field, EULER)


def odenet(solving: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    """64 channels of 7 x 7, three normalised convolutions before the solve."""
    torch.manual_seed(0)
    first, *further = (nn.Conv2d(1, 64, 3, padding=1), *(nn.Conv2d(64, 64, 4, stride=2, padding=1) for _ in range(2)))
    stem = [first, *(layer for each in further for layer in (nn.GroupNorm(32, 64), nn.ReLU(), each))]
    head = [nn.GroupNorm(32, 64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*stem, solving(OdeNet()), *head)


def tanh_mlp(solving: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(solving(TimeMLP()), nn.Linear(2, 2))


@dataclass(frozen=True)
class Cost:
    """What one audit took."""

    model: str
    outcome: str
    own_accuracy: float | None
    flow_accuracy: float | None
    reference: str
    phases: dict[str, float]
    evaluations: float
    seconds: float


def train(model: nn.Module, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(ITERATIONS):
        chosen = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()


def cost_of(name: str, model: nn.Module, x: Tensor, y: Tensor) -> Cost:
    """An audit with evidence; the field counts, as a hook of every copy."""
    spent: Counter[str] = Counter()
    phase = "what the model solves"

    def count(field: nn.Module, given: tuple[Any, ...], rate: Any) -> None:
        spent[phase] += len(given[1])

    def report(now: AuditProgress) -> None:
        nonlocal phase
        phase = now.phase

    for field in model.modules():
        if isinstance(field, OdeNet | TimeMLP):
            field.register_forward_hook(count)
    begun = time.perf_counter()
    verdict = wm.audit(model, (x, y), report=report)
    return Cost(
        model=name,
        outcome=str(verdict.outcome),
        own_accuracy=verdict.own.metric,
        flow_accuracy=verdict.reference.metric,
        reference=str(verdict.reference),
        phases={name: round(total / len(x), 2) for name, total in spent.items()},
        evaluations=round(sum(spent.values()) / len(x), 2),
        seconds=time.perf_counter() - begun,
    )


def costs() -> list[Cost]:
    found = []
    for name, build in {"odenet": odenet, "tanh MLP": tanh_mlp}.items():
        loaded = data.load("mnist" if build is odenet else "sphere2")
        shape = (-1, 1, 28, 28) if build is odenet else (-1, 2)
        (x, y), (test_x, test_y) = ((a.reshape(shape).float(), b.long()) for a, b in (loaded.train, loaded.test))
        trained = build(with_block)
        train(trained, x, y)
        for how, solving in (("ODEBlock", with_block), ("torchdiffeq", WithTorchdiffeq)):
            model = build(solving)
            model.load_state_dict(trained.state_dict())
            found.append(cost_of(f"{name}, {how}", model, test_x[:SAMPLES], test_y[:SAMPLES]))
    return found


def run() -> list[Bar]:
    found = costs()
    rows = {cost.model: {"all": cost.evaluations, **cost.phases} for cost in found}
    show(f"Evaluations of the field a sample in an audit of {SAMPLES} samples, 2 Euler steps", rows)
    keep("audit_cost", {"samples": SAMPLES, "costs": [vars(cost) for cost in found]})
    return [
        Bar(name=f"audit of the {c.model}, evaluations a sample", measured=c.evaluations, limit=MOST, at_least=False)
        for c in found
        if c.model.startswith("odenet")
    ]
