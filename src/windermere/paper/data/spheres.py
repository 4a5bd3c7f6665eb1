"""Concentric spheres: one class lies between two shells of the other, and a flow on R^d keeps inside and
outside apart, so none makes them linearly separable.

Shapes: n points, d dimensions; shells innermost first.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from windermere.checks import is_whole
from windermere.errors import UsageError, describe_value
from windermere.paper.data.dataset import DataSet, Split


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Points of one class between two radii."""

    inner: float
    outer: float
    label: int
    quarters: int
    """How many quarters of all points lie here."""


SHELLS = (
    Shell(inner=0.1, outer=0.15, label=0, quarters=1),
    Shell(inner=0.25, outer=0.3, label=1, quarters=2),
    Shell(inner=0.4, outer=0.45, label=0, quarters=1),
)


MOST_DIMENSIONS = 100_000
"""3000 points of so many coordinates are 2.4 GB; more are a slip."""


def spheres(dimension: int, *, seed: int = 0, train: int = 2000, test: int = 1000) -> DataSet:
    """The paper's Sphere data in any dimension; the same seed gives the same points."""
    if not is_whole(dimension, least=1):
        raise UsageError(f"spheres need a whole dimension of at least 1, not {describe_value(dimension)}")
    if dimension > MOST_DIMENSIONS:
        raise UsageError(f"spheres in {dimension} dimensions would fill the memory: take at most {MOST_DIMENSIONS}")
    if not is_whole(seed, least=0) or seed >= 2**63:
        raise UsageError(f"a seed is an integer from 0 to 2**63 - 1, not {describe_value(seed)}")
    # A generator of its own: drawing data must not move the random numbers that weights come from.
    generator = torch.Generator().manual_seed(seed)
    return DataSet(
        name=f"sphere{dimension}",
        train=_split(train, dimension, generator),
        test=_split(test, dimension, generator),
        classes=2,
    )


def _split(n: int, dimension: int, generator: Generator) -> Split:
    if not is_whole(n, least=4) or n % 4:
        raise UsageError(
            f"the shells hold exact quarters of the points: {describe_value(n)} is not a positive multiple of 4"
        )
    points = torch.cat([_points(shell, n, dimension, generator) for shell in SHELLS])
    labels = torch.cat([torch.full((_count(shell, n),), shell.label) for shell in SHELLS])
    order = torch.randperm(n, generator=generator)
    return Split(inputs=points[order].float(), labels=labels[order])


def _count(shell: Shell, n: int) -> int:
    return shell.quarters * n // 4


def _points(shell: Shell, n: int, dimension: int, generator: Generator) -> Tensor:
    """[count, d] in float64: u^(1/d) crowds at 1 in high dimension, where float32 has few values left."""
    count = _count(shell, n)
    uniform = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    gaussian = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    radii = (shell.outer - shell.inner) * uniform ** (1 / dimension) + shell.inner
    return radii * directions(gaussian)


def directions(gaussian: Tensor) -> Tensor:
    """Unit vectors [n, d]; a zero vector has no direction and takes the first axis."""
    norms = torch.linalg.vector_norm(gaussian, dim=1, keepdim=True)
    first_axis = torch.zeros_like(gaussian[:1])
    first_axis[:, 0] = 1
    return torch.where(norms > 0, gaussian / norms, first_axis)
