"""Plain PyTorch around a torchdiffeq model, whose step is adapted while it trains: no grid search, no ResNet."""

import argparse

import torch
from torch import nn
from torchdiffeq import odeint

import windermere as wm
from windermere.paper.data import load

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=800)
iterations = parser.parse_args().iterations

torch.manual_seed(0)
data = load("sphere2").train
network = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
head, times = nn.Linear(3, 2), torch.tensor([0.0, 1.0])
optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=1e-3)


def field(t, z):
    return network(z)


def lifted(x):
    """Into a third dimension, in which a flow can take circles out of one another."""
    return nn.functional.pad(x, (0, 1))


def forward(x, solver):
    return head(odeint(field, lifted(x), times, method=solver.method, options={"step_size": solver.step})[-1])


def score(checked):
    accuracy = (checked.argmax(dim=1) == y).double().mean().item()
    return wm.Score(value=accuracy, distance=wm.moved_mass(logits, checked).item())


controller = wm.SteadySteps(train="euler", check="midpoint", every=20, target=0.05)
state = controller.start(wm.initial_step(field, lifted(data.inputs), order=1))

for iteration in range(1, iterations + 1):
    chosen = torch.randint(len(data.labels), (128,))
    x, y = data.inputs[chosen], data.labels[chosen]
    logits = forward(x, controller.solver(state))
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits, y).backward()
    if iteration % controller.every == 0:
        with torch.no_grad():
            state = wm.review(controller, state, score(logits), lambda solver: score(forward(x, solver)))  # noqa: B023
        done = state.decision
        print(f"{iteration:5d}  accuracy {done.trained:.3f}  step {done.before:.4f} -> {done.after:.4f}  {done.reason}")
    optimizer.step()
