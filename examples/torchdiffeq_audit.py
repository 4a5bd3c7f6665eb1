"""A torchdiffeq model as one writes it, trained with two Euler steps, then audited: it is tied to its solver."""

import argparse

import torch
from torch import nn
from torchdiffeq import odeint

import windermere as wm
from windermere.paper.data import load

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=1000)
iterations = parser.parse_args().iterations


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        times = torch.tensor([0.0, 1.0])
        states = odeint(lambda t, z: self.network(z), x, times, method="euler", options={"step_size": 0.5})
        return self.head(states[-1])


torch.manual_seed(0)
torch.set_num_threads(1)  # the network is so small that several would wait for one another
data = load("sphere2")
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(iterations):
    chosen = torch.randint(len(data.train.labels), (128,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data.train.inputs[chosen]), data.train.labels[chosen]).backward()
    optimizer.step()

print(wm.audit(model, data.test))
