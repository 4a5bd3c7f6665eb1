"""A diffusion model's deterministic sampler (DDIM: Euler in sigma) on an exact score: how many sigmas does it need?

The data are a mixture of normal distributions, so that the score at every noise level is known, and nothing is trained.
With x = data + sigma * noise, the probability flow is dx/dsigma = -sigma * score(x, sigma).
"""

import torch

import windermere as wm

MEANS = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
WIDTH = 0.2


def draw(n):
    return MEANS[torch.randint(len(MEANS), (n,))] + WIDTH * torch.randn(n, 2)


def velocity(x, sigma):
    variance = WIDTH**2 + sigma**2
    away = MEANS.to(x) - x[:, None]
    shares = torch.softmax(-away.square().sum(dim=2) / (2 * variance), dim=1)
    return -sigma * (shares[:, :, None] * away).sum(dim=1) / variance


def sigmas(steps, largest=20.0, smallest=0.02, rho=7.0):
    """Karras et al. 2022, equation 5, and 0 at the end."""
    places = torch.linspace(largest ** (1 / rho), smallest ** (1 / rho), steps, dtype=torch.float64)
    return (*(places**rho).tolist(), 0.0)


torch.manual_seed(0)
noise, real = 20.0 * torch.randn(1000, 2), draw(1000)
target = wm.SetDistance("energy").against(real)
print(f"energy distance from real samples (sets of real samples stay below {target.noise(len(noise)):.4f})")
for method, steps in (("euler", 4), ("euler", 8), ("euler", 16), ("euler", 64), ("heun", 8), ("heun", 16)):
    sampler = wm.Sampler(velocity, wm.OnGrid(method, sigmas(steps)), order="xt")
    with torch.no_grad(), wm.counting() as count:
        found = target.measure(sampler(noise)).interval()
    print(f"{method:>6} on {steps:2} sigmas, {int(count.forward):3} evaluations: {found.value:7.4f}")
