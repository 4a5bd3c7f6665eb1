"""Models as a user would keep them in a file, for `windermere audit rotations:NAME`."""

ROTATION = """
import os
import numpy as np
import torch
from torch import nn
import windermere as wm

class Rotation(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(3 * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    def forward(self, t, z):
        return z @ self.matrix

def made(steps):
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        head.bias.zero_()
    model = nn.Sequential(wm.ODEBlock(Rotation(), wm.FixedStep.of("euler", steps=steps)), head)
    angle = torch.linspace(0, 6.28, 300)
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    with torch.no_grad():
        return model, (x, model(x).argmax(dim=1))

def coarse():
    return made(2)

def unlabelled():
    model, (x, y) = made(2)
    return model, x

def regression():
    model, (x, y) = made(64)
    with torch.no_grad(), wm.using(model, wm.FixedStep.of("rk4", steps=64)):
        return model, (x, model(x) + 1e-3)

def fine():
    print("loading")
    return made(256)

class Noisy(Rotation):
    def forward(self, t, z):
        return super().forward(t, z) + torch.as_tensor(np.random.default_rng().normal(size=z.shape)).to(z)

def noisy():
    model, batch = made(2)
    model[0] = wm.ODEBlock(Noisy(), model[0].solver)
    return model, batch

class Leaving(nn.Module):
    def forward(self, t, z):
        return z ** 2

def boundless():
    model, (x, y) = made(2)
    model[0] = wm.ODEBlock(Leaving(), model[0].solver)
    return model, (1.5 * x, y)

def wrong():
    return 1

def raising():
    raise ValueError("no such weights")

def leaving():
    raise SystemExit(3)

def needy(path):
    return made(2)

def wandering():
    os.chdir("elsewhere")
    return 1

def broken():
    return made(2)[0], (torch.randn(20, 3), torch.zeros(20).long())

class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = made(256)[0]
    def forward(self, x, t):
        return (self.block(x) * t.sum()).T

def timed():
    model, (x, y) = made(256)
    return Series(), ((x, torch.ones(5)), y)

def changing():
    model, (x, y) = made(256)
    return Series(), [((x, torch.ones(5)), y), ((x, torch.ones(6)), y)]

class Turned(Series):
    def forward(self, x, t):
        return super().forward(x, t).T

def summed():
    model, (x, y) = made(256)
    return Turned(), ((x, torch.linspace(0, 1, 300)), y)

class Pairs(Series):
    def forward(self, x, t):
        return self.block(x) @ self.block(x).T

def paired():
    model, (x, y) = made(256)
    return Pairs(), ((x, torch.ones(300)), y)

def sampler():  # one step of Euler leaves a tenth of the noise, as the data are; its flow leaves 0.41
    generator = torch.Generator().manual_seed(0)
    noise, real = (torch.randn(300, 2, generator=generator) for _ in range(2))
    return wm.Sampler(lambda x, t: -0.9 * x, wm.FixedStep("euler", step=1.0)), noise, 0.1 * real
"""
