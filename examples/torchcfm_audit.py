"""A sampler as torchcfm's tutorials make it, trained by flow matching and solved by torchdyn, then audited."""

import argparse

import torch
from torchcfm.conditional_flow_matching import ConditionalFlowMatcher
from torchcfm.models import MLP
from torchcfm.utils import torch_wrapper
from torchdyn.core import NeuralODE

import windermere as wm

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=1000)
iterations = parser.parse_args().iterations

torch.manual_seed(0)
model, matcher = MLP(dim=2, time_varying=True), ConditionalFlowMatcher(sigma=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(iterations):
    rings = torch.randn(256, 2)
    rings = rings / rings.norm(dim=1, keepdim=True)
    t, xt, ut = matcher.sample_location_and_conditional_flow(torch.randn(256, 2), rings)
    optimizer.zero_grad()
    (model(torch.cat([xt, t[:, None]], dim=-1)) - ut).square().mean().backward()
    optimizer.step()

node = NeuralODE(torch_wrapper(model), solver="euler")
times = torch.linspace(0, 1, 11)
noise = torch.randn(500, 2)
print(
    wm.audit(
        lambda x: node.trajectory(x, t_span=times)[-1],
        (noise, noise),
        metric=lambda samples, _: samples.norm(dim=1),  # the radius, 1 in the data
        threshold=0.05,
    )
)
