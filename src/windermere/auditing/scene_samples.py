"""Samples that a model generates under each solver, seen beside real ones.

Shapes: n samples, D entries of each, m thumbnails of H x W pixels in C colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, Self

import numpy as np

from windermere.auditing.scene_view import Array, Projection, View
from windermere.auditing.subject import Pass

SAMPLES = 600
SMALLEST, LARGEST = 6, 32
"""Pixels along a side: what is smaller is no image, and what is larger is shrunk by a whole factor."""
MOST_THUMBNAILS, THUMBNAIL_BYTES = 25, 400_000
"""How many are shown of each set, as long as those of all sets together take no more bytes."""


def add_samples(scene: dict[str, Any], passes: Sequence[Pass], real: Any) -> None:
    """Adds the outputs of every rung and the real samples, [n, 2] in a square around the real ones. Many dimensions are
    seen in the two in which the real samples differ most; images are seen as such too."""
    known = _rows(real)
    project = Projection.of(known)
    seen = project(known)
    view = View.around(np.stack([seen, seen]), [])
    scene |= {
        "kind": "samples",
        "points": 0,
        "real": view(seen),
        "dimension": known.shape[1],
        "explained": project.explained,
    }
    for rung, done in zip(scene["rungs"], passes, strict=True):
        rung["samples"] = view(project(_rows(done.outputs)))
    if (thumbnails := Thumbnails.of(_array(real), sets=len(passes) + 1)) is not None:
        scene |= {"thumbnail": thumbnails.size, "real_thumbnails": thumbnails(_array(real))}
        for rung, done in zip(scene["rungs"], passes, strict=True):
            rung["thumbnails"] = thumbnails(_array(done.outputs))


@dataclass(frozen=True, kw_only=True)
class Thumbnails:
    """How samples are shown as images: the first few, from black to white as real ones are."""

    first: bool
    """Whether colours are the first axis of a sample, not its last."""
    shrink: int
    """So many pixels along a side become one."""
    size: list[int]
    """H, W, C"""
    count: int
    low: float
    high: float

    @classmethod
    def of(cls, real: Array, *, sets: int) -> Self | None:
        """For real samples [n, C, H, W] or [n, H, W, C] of one or three colours; None where they are no such images."""
        shape = real.shape[1:]
        first = len(shape) == 3 and shape[0] in (1, 3)
        if len(shape) != 3 or not (first or shape[2] in (1, 3)):
            return None
        *sides, colours = (*shape[1:], shape[0]) if first else shape
        if min(sides) < SMALLEST:
            return None
        shrink = -(-max(sides) // LARGEST)
        size = [*(side // shrink for side in sides), colours]
        room = min(MOST_THUMBNAILS, len(real), THUMBNAIL_BYTES // (sets * prod(size)))
        low, high = (float(x) for x in np.quantile(real[:SAMPLES], (0.002, 0.998)))
        return cls(first=first, shrink=shrink, size=size, count=max(1, isqrt(room)) ** 2, low=low, high=high)

    def __call__(self, samples: Array) -> Array:
        """[m, H, W, C], bytes; what is not finite is black."""
        some = np.moveaxis(samples[: self.count], 1, -1) if self.first else samples[: self.count]
        (height, width, colours), k = self.size, self.shrink
        cut = some[:, : height * k, : width * k].reshape(-1, height, k, width, k, colours).mean(axis=(2, 4))
        light = (cut - self.low) / max(self.high - self.low, 1e-300)
        shown: Array = np.round(255 * np.clip(np.nan_to_num(light, nan=0.0), 0, 1)).astype(np.uint8)
        return shown


def _array(values: Any) -> Array:
    return np.asarray(values.detach().double().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def _rows(values: Any) -> Array:
    """[n, D]: the first ones, each as one row."""
    rows = _array(values[:SAMPLES])
    return rows.reshape(len(rows), -1)
