"""Fast paths of the sphere networks: Triton kernels on a GPU, C on a CPU, and elsewhere dense layers.

Shapes: S members, B samples, d points, C channels; a state is [B, d], an ensemble's [S, B, d]. *Weights* are those of
Conv1d(1, C, 1), Conv1d(C, C, 3, padding=1) and Conv1d(C, 1, 1), each with its bias, in an ensemble with a leading S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from windermere.fast.cpu.native import InC, Native
from windermere.fast.cpu.native_plan import network_of
from windermere.paper.fast.dense import DenseField, dense_layers, eager_walk
from windermere.paper.fast.fused import can_walk, walk_on_device
from windermere.paper.fast.fused_adaptive import adapt_on_device, can_adapt
from windermere.solvers import FastPath, Prepared, Problem, Tableau, Walked
from windermere.solvers.field import Rate
from windermere.solvers.grid import Grid, Steps

DENSE_UP_TO = 16
"""Points up to which the banded matrix pays; beyond, it is mostly zeros and the convolution is faster."""


def along_a_line(weights: Sequence[Tensor], z: Tensor) -> Tensor:
    """The three layers of a model alone, as the paper writes them: convolutions over the d coordinates."""
    w1, b1, w2, b2, w3, b3 = weights
    hidden = F.relu(F.conv1d(z.unsqueeze(-2), w1, b1))
    return F.conv1d(F.relu(F.conv1d(hidden, w2, b2, padding=1)), w3, b3).squeeze(-2)


@dataclass(frozen=True)
class Spheres:
    """What fast paths have to know of a sphere network, or of an ensemble of them, for one solve."""

    weights: Sequence[Tensor]
    points: int

    @cached_property
    def dense(self) -> DenseField:
        """The field as dense layers, made once: neither the kernels nor the C code need it."""
        return dense_layers(self.weights, self.points)

    @property
    def prepared(self) -> Prepared:
        """Ready to be solved step by step. It is asked for when a solve begins, so that autograd's mode is its."""
        if self.points > DENSE_UP_TO:
            return Prepared(self._convolve, lambda: tuple(self.weights))
        graded = torch.is_grad_enabled()

        def dense() -> DenseField:
            with torch.set_grad_enabled(graded):
                return self.dense

        return Prepared(lambda t, z: dense().rate(t, z), lambda: dense().layers)

    @property
    def native(self) -> Native:
        """As native.c takes it."""
        slow: Rate = self._convolve if self.points > DENSE_UP_TO else self._anew
        return Native(network_of("sphere", self.points, self.weights[0].shape[-3]), self.weights, slow)

    def walk(self, tableau: Tableau, steps: Grid | Steps, z: Tensor) -> Tensor:
        """z at the end of a grid, or of steps that lie on the device: by the kernels, or on autograd's tape."""
        if z.shape[-1] == self.points and can_walk(tableau, z, self.weights):
            return walk_on_device(tableau, steps, z, self.weights)
        return eager_walk(self.prepared.rate, tableau, steps, z)

    def _anew(self, t: Tensor, z: Tensor) -> Tensor:
        """The dense field of these very weights, not of layers made from them once."""
        return dense_layers(self.weights, self.points).rate(t, z)

    def _convolve(self, t: Tensor, z: Tensor) -> Tensor:
        """One model, or member by member."""
        if self.weights[0].ndim == 3:
            return along_a_line(self.weights, z)
        return torch.stack([along_a_line([w[s] for w in self.weights], zs) for s, zs in enumerate(z.unbind(0))])


SpheresOf: TypeAlias = Callable[[Any], Spheres | None]


@dataclass(frozen=True)
class SphereKernels(FastPath):
    """Whole solves by one Triton kernel."""

    spheres_of: SpheresOf

    def prepare(self, field: Any) -> Prepared | None:
        spheres = self.spheres_of(field)
        return None if spheres is None else spheres.prepared

    def fixed(self, problem: Problem) -> Walked | None:
        z, grid, spheres = problem.z0, problem.grid, self._asked(problem)
        if spheres is None or grid.nodes.ndim >= z.ndim or not can_walk(problem.tableau, z, spheres.weights):
            return None
        end = walk_on_device(problem.tableau, grid, z, spheres.weights)
        return Walked.over_grid(problem.tableau.propagating, grid.taken, [z, end])

    def adaptive(self, problem: Problem) -> Walked | None:
        spheres = self._asked(problem)
        if spheres is None or not can_adapt(problem, spheres.weights):
            return None
        found = adapt_on_device(problem, spheres.weights)
        return None if found is None else Walked.adapted(problem, [problem.z0, found.end], found.costs)

    def _asked(self, problem: Problem) -> Spheres | None:
        """The network, if this is a solve that kernels may take."""
        if not problem.z0.is_cuda or not problem.is_plain or problem.gradient == "checkpoint":
            return None
        spheres = self.spheres_of(problem.field)
        return spheres if spheres is not None and spheres.points == problem.z0.shape[-1] else None


@dataclass(frozen=True)
class SpheresInC(InC):
    """Whole solves in C."""

    spheres_of: SpheresOf

    def native_of(self, problem: Problem) -> Native | None:
        field = problem.field
        spheres = self.spheres_of(field)
        return None if spheres is None else spheres.native
