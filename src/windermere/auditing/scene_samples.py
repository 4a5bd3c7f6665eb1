"""Samples that a model generates under each solver, seen beside real ones.

Shapes: n samples, D entries of each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from windermere.auditing.scene_view import Array, Projection, View
from windermere.auditing.subject import Pass

SAMPLES = 600


def add_samples(scene: dict[str, Any], passes: Sequence[Pass], real: Any) -> None:
    """Adds the outputs of every rung and the real samples, [n, 2] in a square around the real ones. Many dimensions are
    seen in the two in which the real samples differ most."""
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


def _rows(values: Any) -> Array:
    """[n, D]: the first ones, each as one row."""
    rows = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)[:SAMPLES]
    return rows.reshape(len(rows), -1)
