"""How states of any dimension are shown in a square: projected, looked at around their start, far ones drawn nearer.

Shapes: K steps, P points, D entries of a state, F frames of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FRAMES = 24
"""Pieces of a trajectory that are kept, equally long in time: fewer steps than this are all seen, but for odd ones."""
MOST, MARGIN = 0.98, 1.12
"""The share of the own solver's ends that the square holds, and the room around them."""
FARTHER, FARTHER_LINEAR = 30.0, 1.4
"""How many times farther than these the square may reach for the ends of other solvers, by its scale."""
WIDE = 6.0
"""From how many times the starts' extent on distances are drawn on a logarithmic scale."""
EDGE = 2.0
"""What lies farther out is drawn here, in units of half the square: outside of it."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Two directions in which states differ most."""

    mean: Array
    """[D]"""
    axes: Array
    """[D, 2]"""
    explained: float
    """The share of their variance that is seen: 1 in the plane."""

    @classmethod
    def of(cls, states: Array) -> Self:
        """A view of states [..., D]; those of two entries stay as they are."""
        flat = _finite(states.reshape(-1, states.shape[-1]))
        if flat.shape[1] == 2:
            return cls(mean=np.zeros(2), axes=np.eye(2), explained=1.0)
        mean = flat.mean(axis=0)
        _, values, vectors = np.linalg.svd(flat - mean, full_matrices=False)
        variance = values**2
        axes = np.zeros((flat.shape[1], 2))
        axes[:, : len(vectors[:2])] = vectors[:2].T  # a state of one entry has one direction only
        return cls(mean=mean, axes=axes, explained=float(variance[:2].sum() / max(variance.sum(), 1e-300)))

    def __call__(self, states: Array) -> Array:
        shown: Array = (states - self.mean) @ self.axes
        return shown


@dataclass(frozen=True, kw_only=True)
class View:
    """A square around the starts. Where ends lie far away, directions are kept and distances are logarithmic."""

    centre: Array
    """[2]"""
    radius: float
    """Half the square's side."""
    scale: float | None
    """Up to about this distance the scale is linear, from there on logarithmic; None where all of it is linear."""

    @classmethod
    def around(cls, own: Array, others: Sequence[Array]) -> Self:
        """Around the own solver's trajectories [F + 1, P, 2], and those of others as far as that leaves some room."""
        centre = own[0].mean(axis=0)
        start = max(_reach(own[:1], centre, 1.0), 1e-9)
        near = _reach(own, centre, MOST)
        far = max([near, *(_reach(each[-1:], centre, 0.9) for each in others)])
        wide = near > WIDE * start
        radius = MARGIN * max(start, near, min(far, (FARTHER if wide else FARTHER_LINEAR) * near))
        return cls(centre=centre, radius=radius, scale=start / 4 if wide else None)

    def __call__(self, states: Array) -> Array:
        """Points [..., 2] in the square [-1, 1]²; what is not finite lies outside."""
        away = np.nan_to_num(states - self.centre, nan=1e30, posinf=1e30, neginf=-1e30)
        distance = np.maximum(np.hypot(away[..., 0], away[..., 1]), 1e-300)
        shown: Array = away * (np.minimum(self.shown(distance), EDGE) / distance)[..., None]
        return shown

    def back(self, shown: Array) -> Array:
        """Where points of the square lie in the plane."""
        distance = np.maximum(np.hypot(shown[..., 0], shown[..., 1]), 1e-300)
        factor = self.radius if self.scale is None else self.scale * np.sinh(distance * self._unit) / distance
        back: Array = self.centre + shown * np.asarray(factor)[..., None]
        return back

    @property
    def rings(self) -> list[float]:
        """Round distances from the centre to draw as circles."""
        lowest = 0.25 * (self.radius if self.scale is None else self.scale)
        powers = range(int(np.ceil(np.log10(lowest))), int(np.floor(np.log10(self.radius))) + 1)
        return [float(f"1e{power}") for power in powers][-4:]

    @property
    def _unit(self) -> float:
        return 1.0 if self.scale is None else float(np.arcsinh(self.radius / self.scale))

    def shown(self, distance: Array) -> Array:
        shown: Array = distance / self.radius if self.scale is None else np.arcsinh(distance / self.scale) / self._unit
        return shown


def resampled(states: Array, times: Array) -> Array:
    """A polygon [K + 1, P, D] at equally spaced times, [F + 1, P, D]."""
    share = (times - times[0]) / (times[-1] - times[0])
    wanted = np.linspace(0.0, 1.0, FRAMES + 1)
    left = np.clip(np.searchsorted(share, wanted, side="right") - 1, 0, len(share) - 2)
    weight = ((wanted - share[left]) / (share[left + 1] - share[left]))[:, None, None]
    with np.errstate(all="ignore"):  # a solver that blows up ends outside
        between: Array = states[left] * (1 - weight) + states[left + 1] * weight
    return between


def _reach(states: Array, centre: Array, share: float) -> float:
    away = np.abs(_finite(states.reshape(-1, 2)) - centre).max(axis=1, initial=0.0)
    return float(np.quantile(away, share)) if len(away) else 0.0


def _finite(rows: Array) -> Array:
    finite: Array = rows[np.isfinite(rows).all(axis=1) & (np.abs(rows) < 1e30).all(axis=1)]
    return finite
