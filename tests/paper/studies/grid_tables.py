"""Tables of grids made by hand."""

from dataclasses import replace
from typing import Any

from windermere.paper.studies.rows import GridRow


def a_row(**columns: Any) -> GridRow:
    """The row of a model's own solver, as good as can be unless other columns are given."""
    about: dict[str, Any] = {"run": "a-run", "seed": 0, "data": "sphere2", "method": "euler", "gradient": "backprop"}
    about |= {"lr": 1e-4, "iterations": 10_000, "own": True, "factor": 1.0, "accuracy": 1.0}
    return GridRow(**{**about, **columns})


def a_model(
    steps: int | None,
    *,
    own: float | None = 1.0,
    checked: float | None = 1.0,
    seed: int = 0,
    method: str = "euler",
    **columns: Any,
) -> list[GridRow]:
    """Two rows of a model: its own solver, and rk4 at half the step."""
    about = {"run": f"{method}-{steps}", "seed": seed, "method": method, "steps": steps, **columns}
    row = a_row(**about, test_method=method, accuracy=own)
    return [row, replace(row, test_method="rk4", factor=0.5, own=False, accuracy=checked)]


def a_grid(checked: dict[int, float], **columns: Any) -> list[GridRow]:
    """One seed for each number of steps, with what the check solver scores where its own is right on all."""
    return [row for steps, accuracy in checked.items() for row in a_model(steps, checked=accuracy, **columns)]
