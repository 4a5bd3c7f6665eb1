"""Counting the crossings of 1000 trajectories of 128 steps, for bundles of several kinds."""

import time

import numpy as np
import torch
from numpy.typing import NDArray

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from windermere.auditing.evidence.crossings import count_crossings
from windermere.paper.architectures import SphereField, initialise

SAMPLES, STEPS = 1000, 128


def walked(field: torch.nn.Module, start: torch.Tensor) -> NDArray[np.float64]:
    with torch.no_grad():
        solution = wm.solve(field.double(), start.double(), wm.FixedStep.of("euler", steps=STEPS), record=True)
    assert solution.trajectory is not None
    states: NDArray[np.float64] = torch.as_tensor(solution.trajectory.states).numpy()
    return states


class Linear(torch.nn.Module):
    """z' = A z."""

    def __init__(self, matrix: list[list[float]]) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.tensor(matrix))

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z @ self.matrix.T


def run() -> list[Bar]:
    start = torch.rand(SAMPLES, 2, generator=torch.Generator().manual_seed(0)) - 0.5
    walks = {
        "the sphere network at random": walked(initialise(SphereField(2), 0), start),
        "a rotation, whose chords cross": walked(Linear([[0.0, -6.0], [6.0, 0.0]]), start),
        "a contraction onto a line": walked(Linear([[-10.5, 9.5], [9.5, -10.5]]), start),
        "random walks": np.random.default_rng(0).normal(size=(STEPS + 1, SAMPLES, 2)).cumsum(axis=0),
    }
    seconds, found = {}, {}
    for name, states in walks.items():
        begun = time.perf_counter()
        found[name] = count_crossings(states).total
        seconds[name] = time.perf_counter() - begun
    title = f"Crossings of {SAMPLES} trajectories of {STEPS} steps"
    show(title, {name: f"{seconds[name]:.2f} s, {found[name]:,} crossings" for name in walks})
    keep("crossings", {"seconds": seconds, "crossings": found})
    slowest = max(seconds.values())
    return [Bar(name="slowest count of crossings", measured=slowest, limit=5, at_least=False, unit=" s")]
