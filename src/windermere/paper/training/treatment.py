"""What the study of recipes tries beside random steps: stages, methods and end times that are drawn for each batch,
penalties on the field, and bounds of its layers. It is there to be compared, and is no option of the library.

Shapes: S members, B samples, d points; of images d stands for channels, height and width.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.checks import as_number
from windermere.errors import UsageError
from windermere.nn import ode_blocks
from windermere.paper.architectures import images_of, spheres_of
from windermere.paper.stacked import StackedField
from windermere.paper.training.ensemble import Ensemble
from windermere.solvers import FixedStep, Solver, Tableau

STREAM = 0x7EA7
"""Keeps these draws away from all others."""


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """Something that is done to each batch. The draws are a function of the iteration, the same for all seeds."""

    methods: tuple[tuple[str, int], ...] = ()
    """Methods with their numbers of steps, one of them drawn for each batch."""
    stages: tuple[tuple[float, int], ...] = ()
    """Until which share of all iterations to take how many steps of the run's own method, one after the other."""
    end: float = 0.0
    """A batch is solved until a time drawn evenly between 1 - end and 1 + end (STEER)."""
    kinetic: float = 0.0
    """The weight of the mean square of the field's values along the solve."""
    jacobian: float = 0.0
    """The weight of the mean square of the field's Jacobian times a random vector along the solve."""
    spectral: float = 0.0
    """The most that the spectral norm of a layer of the field may be after an update; 0 bounds nothing."""

    def __post_init__(self) -> None:
        if not 0 <= as_number(self.end) < 1 or (self.stages and self.stages[-1][0] != 1):
            raise UsageError(f"end lies from 0 to less than 1, and the last stage goes on until 1: {self}")
        if not all(as_number(value) >= 0 for value in (self.kinetic, self.jacobian, self.spectral)):
            raise UsageError(f"no weight of a penalty and no bound is negative: {self}")
        for method, steps in self.methods:
            FixedStep.of(method, steps=steps)

    @property
    def penalises(self) -> bool:
        return self.kinetic > 0 or self.jacobian > 0

    def solver(self, own: Solver, iteration: int, of: int) -> Solver:
        """The one for a batch, in this iteration out of so many."""
        if self.stages:
            return FixedStep.of(own.method, steps=next(n for until, n in self.stages if iteration < until * of))
        if not self.methods:
            return own
        method, steps = self.methods[int(_stream(iteration).integers(len(self.methods)))]
        return FixedStep.of(method, steps=steps)

    @contextmanager
    def ending(self, ensemble: Ensemble, solver: Solver, iteration: int) -> Iterator[Solver]:
        """Within, the ensemble is solved until this batch's end time, by the solver given: as many steps as ever."""
        if not self.end:
            yield solver
            return
        last = float(_stream(iteration).uniform(1 - self.end, 1 + self.end))
        blocks = ode_blocks(ensemble.template)
        times = [block.times for block in blocks]
        try:
            for block in blocks:
                block.times = (0.0, last)
            yield solver.with_precision(solver.precision * last)
        finally:
            for block, before in zip(blocks, times, strict=True):
                block.times = before

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Treatment":
        """What `asdict` made, after a trip through JSON."""
        if unknown := set(values) - {f.name for f in fields(cls)}:
            raise UsageError(f"a treatment has no {', '.join(sorted(unknown))}")
        found = cls(**values)
        methods = tuple((str(method), int(steps)) for method, steps in found.methods)
        return replace(found, methods=methods, stages=tuple((float(until), int(n)) for until, n in found.stages))


@torch.no_grad()
def bound_field(ensemble: Ensemble, most: float) -> None:
    """Scales the weights of the field's layers down to a spectral norm of at most so much, each member's by itself. The
    matrix of a convolution is its kernel with a row for each output, as spectral normalisation takes it."""
    for name, weight in ensemble.tensors.items():
        if ".field." in name and name.endswith(".weight"):
            norms = torch.linalg.matrix_norm(weight.flatten(2), ord=2)
            weight.mul_((most / norms).clamp(max=1.0).reshape(-1, *(weight.ndim - 1) * [1]))


def _stream(iteration: int) -> np.random.Generator:
    return np.random.default_rng((STREAM, iteration))


def penalised_features(
    ensemble: Ensemble, x: Tensor, solver: Solver, treatment: Treatment, iteration: int
) -> tuple[Tensor, Tensor, int]:
    """The states [S, B, d] that the classifier is given, the sum of all members' penalties, and what that took in
    evaluations of each member's field: on autograd's tape, step by step. A Jacobian's product counts as one."""
    field, z = ensemble.first_solve(x)
    if not isinstance(solver, FixedStep):
        raise UsageError("penalties are for fixed steps")
    rate, tableau = _rate_of(field), solver.tableau
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(STREAM + iteration)).to(z)
    z, penalty, spent = z.requires_grad_(), z.new_zeros(()), 0
    for h in np.diff(solver.nodes(0.0, 1.0)).tolist():
        first = rate(z.new_zeros(()), z)
        penalty = penalty + treatment.kinetic * h * _mean_square(first)
        if treatment.jacobian:
            (pulled,) = torch.autograd.grad((first * noise).sum(), z, create_graph=True)
            penalty = penalty + treatment.jacobian * h * _mean_square(pulled)
            spent += 1
        z = _step(rate, tableau, z, h, first)
        spent += tableau.propagating
    return z.flatten(2), penalty, spent


def _rate_of(field: StackedField) -> Any:
    """All members' field, of operations that can be differentiated twice."""
    if (spheres := spheres_of(field)) is not None:
        return spheres.dense.rate
    if (images := images_of(field)) is not None:
        return images.rate
    raise UsageError("penalties are for the networks of spheres and of images")


def _mean_square(values: Tensor) -> Tensor:
    """Each member's squared length of a vector, in the mean over samples; summed over members."""
    return values.flatten(2).square().sum(dim=-1).mean(dim=-1).sum()


def _step(rate: Any, tableau: Tableau, z: Tensor, h: float, first: Tensor) -> Tensor:
    rates = [first]
    for row in tableau.a[1 : tableau.propagating]:
        rates.append(rate(z.new_zeros(()), z + h * _combined(row, rates)))
    return z + h * _combined(tableau.b, rates)


def _combined(weights: Sequence[float], rates: Sequence[Tensor]) -> Tensor:
    parts = [float(weight) * rate for weight, rate in zip(weights, rates, strict=False) if weight]
    return torch.stack(parts).sum(dim=0)
