"""Tables of grids made by hand."""

from typing import Any

from windermere.records import Row


def a_model(
    steps: int,
    *,
    own: float | None = 1.0,
    checked: float | None = 1.0,
    seed: int = 0,
    method: str = "euler",
    **columns: Any,
) -> list[Row]:
    """Two rows of a model: its own solver, and rk4 at half the step."""
    about = {"run": f"{method}-{steps}", "seed": seed, "data": "sphere2", "method": method, "steps": steps}
    about |= {"tolerance": None, "gradient": "backprop", "lr": 1e-4, "iterations": 10_000} | columns
    return [
        {**about, "test_method": method, "factor": 1.0, "own": True, "accuracy": own},
        {**about, "test_method": "rk4", "factor": 0.5, "own": False, "accuracy": checked},
    ]


def a_grid(checked: dict[int, float], **columns: Any) -> list[Row]:
    """One seed for each number of steps, with what the check solver scores where its own is right on all."""
    return [row for steps, accuracy in checked.items() for row in a_model(steps, checked=accuracy, **columns)]
