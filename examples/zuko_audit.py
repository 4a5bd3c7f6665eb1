"""A continuous flow of zuko's, trained on two moons, then audited: is its likelihood that of its flow?"""

import argparse

import torch
import zuko

import windermere as wm

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=200)
iterations = parser.parse_args().iterations


def moons(n):
    angles, upper = torch.pi * torch.rand(n), torch.rand(n) < 0.5
    x = torch.where(upper, angles.cos(), 1 - angles.cos())
    y = torch.where(upper, angles.sin(), 0.5 - angles.sin())
    return torch.stack([x, y], dim=1) + 0.1 * torch.randn(n, 2)


torch.manual_seed(0)
flow = zuko.flows.CNF(2, hidden_features=(32, 32), atol=1e-3, rtol=1e-3)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
for _ in range(iterations):
    optimizer.zero_grad()
    (-flow().log_prob(moons(128)).mean()).backward()
    optimizer.step()

x = moons(500)
print(wm.audit(lambda x: flow().log_prob(x), (x, x), metric="nll"))
