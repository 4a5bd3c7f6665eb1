"""A page of every kind of report, made by hand.

Shapes: F frames of time, P points, n images of H x W pixels in C colours.
"""

from typing import Any

import numpy as np

from tests.report.records import a_record, a_scene, some_samples
from windermere.report.page import audit_page

ERRORS = {"kind": "errors", "metric": "mse", "threshold": 1.5, "band": [0.444, 2.25]}
SETS = {"metric": "energy distance", "kind": "sets", "threshold": 0.0028869032859802136}
THUMBNAIL = (6, 5, 3)
"""H, W, C"""


def some_images(count: int = 9) -> dict[str, Any]:
    """Samples that are images, bright at the left; generated ones are the darker the fewer steps are taken."""
    scene = some_samples()
    bright = np.linspace(255, 0, THUMBNAIL[1])[:, None] * np.ones((count, *THUMBNAIL))
    scene |= {"thumbnail": list(THUMBNAIL), "real_thumbnails": bright.astype(np.uint8), "dimension": 90}
    for rung in scene["rungs"]:
        rung["thumbnails"] = (bright * rung["steps"] / 8).astype(np.uint8)
    return {**scene, "explained": 0.25}


def without(scene: dict[str, Any], *names: str, **values: Any) -> dict[str, Any]:
    """A scene of which some parts could not be made."""
    rungs = [{name: value for name, value in rung.items() if name not in names} for rung in scene["rungs"]]
    return {**{name: value for name, value in scene.items() if name not in names}, "rungs": rungs, **values}


def pages() -> dict[str, str]:
    """Each kind of report by its name."""
    numbers = without(a_scene(), "map", "decided", "confusion", "background", "inputs", labels=None, classes=0)
    unlabelled = a_scene() | {"labels": None}
    high = without(a_scene(), "map", "background", "inputs", dimension=196, explained=0.3)
    names = ("trained with 2 Euler steps", "trained with adapted steps")
    return {
        "plane": audit_page([a_record(name="tied", scene=a_scene())]),
        "images": audit_page([a_record(name="images", outcome="FLOW", scene=high)]),
        "regression": audit_page([a_record(name="errors", **ERRORS, scene=numbers)]),
        "likelihood": audit_page([a_record(kind="likelihood", metric="nll", threshold=0.05, scene=numbers)]),
        "decisions": audit_page([a_record(kind="decisions", outcome="MOVED", scene=unlabelled)]),
        "movement": audit_page([a_record(kind="movement", outcome="MOVED", threshold=0.01, scene=numbers)]),
        "sampler": audit_page([a_record(name="sampler", outcome="COARSE", **SETS, scene=some_samples())]),
        "image sampler": audit_page([a_record(name="sampler", **SETS, scene=some_images())]),
        "curve": audit_page([a_record(name="another library's", scene=without(a_scene(), "map", "paths"))]),
        "seeds": audit_page([a_record(name=f"seed {i}", scene=a_scene(own=i % 3)) for i in range(5)]),
        "demo": audit_page(
            [a_record(name=name, scene=a_scene(own=1 + k)) for k, name in enumerate(names)], lead="Two."
        ),
        "bare": audit_page([a_record(name="bare", outcome="UNDECIDED", gap=None, agreement=None, table=[])]),
    }
