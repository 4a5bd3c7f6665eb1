"""Flow matching on two moons in plain PyTorch: how many steps does its sampler need, and is its loop right?"""

import argparse

import torch
from torch import nn

import windermere as wm

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=1000)
iterations = parser.parse_args().iterations


def moons(n):
    angle, upper = torch.pi * torch.rand(n), (torch.rand(n) < 0.5).float()
    x = torch.stack([angle.cos() + 1 - upper, angle.sin() * (2 * upper - 1) + 0.5 * (1 - upper)], dim=1)
    return x + 0.05 * torch.randn(n, 2)


class Velocity(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.network(torch.cat([x, t[:, None]], dim=1))


def sample(velocity, x, steps):
    """The loop that one writes by hand."""
    for k in range(steps):
        x = x + velocity(x, torch.full((len(x),), k / steps)) / steps
    return x


torch.manual_seed(0)
velocity = Velocity()
optimizer = torch.optim.Adam(velocity.parameters(), lr=2e-3)
for _ in range(iterations):
    noise, real, t = torch.randn(256, 2), moons(256), torch.rand(256)
    x = noise + t[:, None] * (real - noise)
    loss = (velocity(x, t) - (real - noise)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

noise, real = torch.randn(1000, 2), moons(1000)
report = wm.audit_loop(sample, velocity, noise, steps=10)
print(report)

target = wm.SetDistance("energy").against(real)
sampler = wm.Sampler(velocity, wm.FixedStep("euler", step=1 / 10))
print(wm.audit(sampler, noise, data=real))
print(f"energy distance from real samples (sets of real samples stay below {target.noise(len(noise)):.4f})")
for method, steps in (("euler", 2), ("euler", 4), ("euler", 10), ("euler", 50), ("midpoint", 5), ("rk4", 25)):
    with torch.no_grad(), wm.using(sampler, wm.FixedStep(method, step=1 / steps)), wm.counting() as count:
        found = target.measure(sampler(noise)).interval()
    print(f"{method:>9}, {steps:2} steps, {int(count.forward):3} evaluations: {found.value:7.4f}")
