"""Pieces of the plane, and what is known of the points in them.

Shapes: S solver steps, N points in the plane, R x C a grid over the plane.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from windermere.errors import UsageError
from windermere.report.palette import CLASSES, Array

FAR, TOO_FAR = 0.15, 3.0
"""A share of trajectories that may be left out, and how many times farther than the rest they go where they are."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A square piece of the plane."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, states: Array, margin: float = 0.06) -> Self:
        """The smallest square around all states [..., 2], and a margin."""
        low, high = states.reshape(-1, 2).min(axis=0), states.reshape(-1, 2).max(axis=0)
        centre, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-6) * (1 + 2 * margin)
        (left, bottom), (right, top) = centre - half, centre + half
        return cls(left=float(left), right=float(right), bottom=float(bottom), top=float(top))

    @classmethod
    def around_most(cls, states: Array) -> Self:
        """Around all trajectories [S + 1, N, 2], but for the share of them that reaches farthest, where these go so
        many times farther than the rest that nothing else could be seen."""
        reach = np.linalg.norm(states - states[0].mean(axis=0), axis=-1).max(axis=0)
        most = np.quantile(reach, 1 - FAR)
        return cls.around(states if reach.max() <= TOO_FAR * most else states[:, reach <= most])

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def corners(self) -> Array:
        """[2, 2]: lower left, upper right"""
        return np.array([[self.left, self.bottom], [self.right, self.top]])

    def holds(self, points: Array) -> Array:
        """Which of the points [..., 2] lie in it."""
        (low, high) = self.corners
        inside: Array = ((points >= low) & (points <= high)).all(axis=-1)
        return inside

    def left_out(self, states: Array) -> str:
        """How many of the trajectories [S + 1, N, 2] end outside, in words; none if none do."""
        outside = int((~self.holds(states[-1])).sum())
        return f"{outside} of {states.shape[1]} points end outside" if outside else ""

    def grid(self, resolution: int) -> tuple[Array, Array]:
        """x and y [resolution, resolution] of points that cover the frame: where to ask a classifier."""
        x = np.linspace(self.left, self.right, resolution)
        y = np.linspace(self.bottom, self.top, resolution)
        xx, yy = np.meshgrid(x, y)
        return xx, yy


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionRegions:
    """What a classifier says of each point of a grid over the plane."""

    xx: Array
    """[R, C]"""
    yy: Array
    """[R, C]"""
    predicted: Array
    """[R, C], classes from 0 to 9"""

    def __post_init__(self) -> None:
        shape = np.shape(self.predicted)
        if len(shape) != 2 or min(shape) < 2 or np.shape(self.xx) != shape or np.shape(self.yy) != shape:
            shapes = f"{np.shape(self.xx)}, {np.shape(self.yy)} and {shape}"
            raise UsageError(f"xx, yy and predicted must share one shape [R, C] of at least 2 x 2, not {shapes}")
        check_classes("predicted", self.predicted)


def check_states(name: str, states: Array) -> None:
    """Whether these are trajectories [S + 1, N, 2], all of them finite."""
    shape = np.shape(states)
    if len(shape) != 3 or shape[2] != 2 or shape[0] < 2 or shape[1] < 1:
        raise UsageError(f"{name} must have shape [steps + 1, points, 2], not {shape}")
    broken = int((~np.isfinite(states).all(axis=(0, 2))).sum())
    if broken:
        raise UsageError(f"{name} must be finite: {broken} of {shape[1]} trajectories are not, leave those out")


def check_labels(name: str, labels: Array, points: int) -> None:
    """Whether these are labels [N] of so many points."""
    if np.shape(labels) != (points,):
        raise UsageError(f"{name} must have shape [{points}], one for each point, not {np.shape(labels)}")
    check_classes(name, labels)


def check_classes(name: str, values: Array) -> None:
    """Whether there is a colour for each."""
    strange = np.setdiff1d(values, range(len(CLASSES)))
    if strange.size:
        raise UsageError(f"{name} must be classes from 0 to {len(CLASSES) - 1}, and {strange[0]} is among them")
