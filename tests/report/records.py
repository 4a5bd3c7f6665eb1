"""Records as `Verdict.to_dict` gives them, and scenes, made by hand.

Shapes: F frames of time, P points, G x G a grid.
"""

from typing import Any

import numpy as np

FRAMES, GRID = 8, 12


def a_line(solver: str, steps: int, score: float | None, **values: Any) -> dict[str, Any]:
    gap = None if score is None else {"value": 1.0 - score, "low": 0.98 - score, "high": 1.02 - score, "samples": 500}
    line = {"solver": solver, "method": solver.split(",")[0], "precision": 1 / steps, "metric": score, "gap": gap}
    line |= {"agreement_own": score, "agreement_reference": score, "error": 0.1, "evaluations": steps}
    return {**line, "counts": True, "failed": None, **values}


def a_record(**values: Any) -> dict[str, Any]:
    """A model that is tied to its two Euler steps."""
    own = a_line("euler, h = 1/2", 2, 1.0)
    others = [a_line("euler, h = 1/4", 4, 0.6), a_line("rk4, h = 1/2", 8, 0.5, counts=False)]
    return {
        "outcome": "TIED",
        "sentence": "TIED to its solver: accuracy 1.000 with euler, h = 1/2, 0.630 under the flow.",
        "recommendation": "Use it with its own solver only.",
        "threshold": 0.1,
        "metric": "accuracy",
        "samples": 500,
        "precision_name": "step",
        "population": "all that were given",
        "own": own,
        "reference": {"solver": "rk4, h = 1/28", "dtype": "float64", "metric": 0.63, "error": 1e-6, "converged": True},
        "gap": {"value": 0.37, "low": 0.339, "high": 0.399, "samples": 500},
        "agreement": 0.63,
        "table": [own, *others, a_line("rk4, h = 1", 4, None, failed="it blew up")],
        "safe": {"precision": 0.125, "solver": "euler, h = 1/8", "ladder": [[0.125, 0.995], [0.25, 0.9], [0.5, 0.63]]},
        "safe_step": 0.125,
        "evidence": [
            {"name": "crossings", "finding": "12 crossings", "proves": "They are the solver's.", "limits": "No."}
        ],
        "notes": ["a note"],
        "evaluations": 61.0,
        **values,
    }


def a_scene(points: int = 40, own: int = 1) -> dict[str, Any]:
    """Points that turn by an angle which shrinks as steps grow in number; half of them are wrong under the flow."""
    counts = (1, 2, 4, 8, 16, None)
    labels = (np.arange(points) % 2).astype(np.uint8)
    rungs = [_rung(steps, 1.0 if i == own else 0.5, points, labels) for i, steps in enumerate(counts)]
    inputs = _places(points, 0.0)
    scene = {"kind": "plane", "own": own, "rungs": rungs, "labels": labels, "classes": 2, "points": points}
    scene |= {"inputs": inputs, "samples": 500, "dimension": 2, "explained": 1.0, "logarithmic": True}
    scene |= {"background": np.tri(GRID, dtype=np.uint8), "bins": [-6.0, -4.0, -2.0, 0.0, 1.0]}
    return {**scene, "rings": [{"distance": 1.0, "at": 0.5}]}


def _rung(steps: int | None, score: float, points: int, labels: Any) -> dict[str, Any]:
    turn = 0.0 if steps is None else 1.0 / steps
    name = {"flow": True, "solver": "the flow itself"} if steps is None else {"solver": f"euler, h = 1/{steps}"}
    paths = np.stack([_places(points, turn * k / FRAMES) for k in range(FRAMES + 1)])
    decided = labels if score == 1 else np.zeros_like(labels)
    told: dict[str, Any] = {
        "steps": steps,
        "method": "euler",
        "precision": 1 / (steps or 1),
        "score": score,
        "evaluations": steps or 99,
    }
    told |= {"paths": paths, "decided": decided, "map": np.eye(GRID, dtype=np.uint8), "outside": 0}
    return {**name, **told, "moved": [5, 4, 3, 2], "confusion": [[20, 3], [0, 17]], "agreement": 0.925}


def _places(points: int, turn: float) -> Any:
    angle = 2 * np.pi * np.arange(points) / points + turn
    return 0.7 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def some_samples(points: int = 60) -> dict[str, Any]:
    """What a sampler draws with each number of steps, beside real samples."""
    real = np.random.default_rng(0).normal(size=(points, 2)) / 4
    rungs: list[dict[str, Any]] = [
        {"solver": f"euler, h = 1/{n}", "method": "euler", "precision": 1 / n, "steps": n} for n in (1, 2, 4, 8)
    ]
    rungs = [{**rung, "score": rung["precision"], "samples": real * rung["steps"] / 8} for rung in rungs]
    return {"kind": "samples", "own": 1, "rungs": rungs, "real": real, "points": 0, "classes": 0, "labels": None}
