"""How steps are chosen where each sample has its own (native_samples.h), which they were, and what that cost."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windermere.fast.cpu.native_plan import NativeWalk
from windermere.solvers import Problem
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step


class SampleChoice:
    """In arrays that a walk has the addresses of."""

    def __init__(self, problem: Problem, room: int, lanes: int) -> None:
        """With room for so many tries of each tile of samples."""
        solver, samples = problem.adaptive[0], len(problem.z0)
        tiles, inner = -(-samples // lanes), len(problem.times) - 2
        times = np.stack([np.broadcast_to(np.asarray(t, np.float64), samples) for t in problem.times])
        self.room, self.inner = room, inner
        least = smallest_step(problem.ends, problem.z0.dtype)
        self.costs = np.zeros((3, samples), np.int64)
        """Evaluations, steps accepted and rejected."""
        self.status, self.steps = np.zeros(tiles, np.int64), np.zeros(tiles, np.int64)
        self.tries = np.zeros((tiles, room, 3, lanes))
        """From, to and size of each."""
        self.before = np.zeros((tiles, inner, lanes), np.int64)
        """How many tries lie before a time asked for; where it is passed over, before the try that it is in, or -1
        where it is the end once more."""
        self.asked = times[1:-1].copy()
        self.arrays = {
            "begins": times[0].copy(), "finishes": times[-1].copy(), "asked": self.asked, "tries": self.tries,
            "leasts": np.broadcast_to(np.asarray(least, np.float64), samples).copy(), "before": self.before,
            "evaluations": self.costs, "status": self.status, "steps": self.steps,
            "rtol": np.array([solver.rtol]), "atol": np.array([solver.atol]),
        }  # fmt: skip
        self.numbers = {
            "budget": float(solver.max_steps), "order": problem.tableau.embedded_order + 1.0, "safety": SAFETY,
            "most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING,
            "rounding": torch.finfo(problem.z0.dtype).eps, "inner": inner, "by_sample": 1,
        }  # fmt: skip

    def by_samples(self, values: NDArray[Any]) -> NDArray[Any]:
        """[tiles, n, lanes] as [n, samples]."""
        tiles, n, lanes = values.shape
        rows = np.moveaxis(values, 1, 0).reshape(n, tiles * lanes)
        return np.asarray(rows[:, : self.costs.shape[1]])

    @property
    def kept(self) -> list[NDArray[np.float64]]:
        """[tries, samples] of each: from, to and size. Tiles with fewer tries stay where they are in the rest."""
        parts = [self.by_samples(self.tries[:, : self.steps.max(), k]) for k in range(3)]
        tiles = np.repeat(self.steps, self.tries.shape[-1])[: self.costs.shape[1]]
        return [np.where(np.arange(len(part))[:, None] < tiles, part, 0.0) for part in parts]

    def give(self, walk: NativeWalk) -> None:
        for name, array in self.arrays.items():
            setattr(walk, name, array.ctypes.data)
        for name, number in self.numbers.items():
            setattr(walk, name, number)
        walk.kept.append(self)
