"""`windermere evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.cli.options import ARITHMETIC, AsJson, Control, Device, Method, Step, Steps, Tolerance
from windermere.starting import importing


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    solver: Method = None,
    steps: Steps = None,
    step: Step = None,
    tolerance: Tolerance = None,
    control: Control = None,
    device: Device = None,
    arithmetic: Annotated[str, typer.Option(help=ARITHMETIC, show_default=False)] = "float32",
    as_json: AsJson = False,
) -> None:
    """Test a trained run with its own solver and with another one, side by side.

    Example: windermere evaluate runs/fine --solver rk4 --steps 128
    """
    with importing():
        from windermere.cli.evaluate import evaluate_run
        from windermere.cli.reading import read_solver
    other = read_solver(solver, steps=steps, step=step, tolerance=tolerance, control=control)
    evaluate_run(run, other, device=device, arithmetic=arithmetic, as_json=as_json)
