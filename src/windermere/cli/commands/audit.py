"""`windermere audit`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from windermere.cli.options import FLAG, AsJson, Device
from windermere.starting import importing


def audit_command(
    target: Annotated[
        str, typer.Argument(help="A trained run's folder, or package.module:function, which returns (model, batches).")
    ],
    seed: Annotated[int | None, typer.Option(help="Audit this seed of a run only. Default: all of them.")] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples to draw at random. Default: 1000.")] = None,
    everything: Annotated[bool, typer.Option("--all", metavar=FLAG, help="Look at all samples instead.")] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            help="accuracy, rmse, mse, mae, r2, nll or energy-drift. Default: accuracy, where there are labels."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Scores this far apart count as different. Default: the metric's own, 0.1 for accuracy."),
    ] = None,
    outputs: Annotated[
        str | None, typer.Option(help="Without labels: are outputs classes or numbers? Default: numbers.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Where to draw. Default: audit.png in the run's folder.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page to open in a browser and to send, such as audit.html.")
    ] = None,
    evidence: Annotated[bool, typer.Option(metavar=FLAG, help="Gather evidence beside the verdict.")] = True,
    batch_axis: Annotated[
        int | None,
        typer.Option(help="The axis of a function's model's outputs that is the samples'. Default: it is found."),
    ] = None,
    shared: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="An input that all samples share, by name or position; once for each."),
    ] = None,
    device: Device = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", metavar=FLAG, help="Of several seeds, tell all about each of them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Is this model a flow? Exit code 0: flow, 10: tied to its solver, 11: undecided, 12: coarse, 13: moved.

    Examples: windermere audit runs/fine, windermere audit my_project.models:load
    """
    with importing():
        from windermere.cli.audit import audit_target, limit_of
    asked: dict[str, Any] = {"metric": metric, "threshold": threshold, "outputs": outputs, "batch_axis": batch_axis}
    asked |= {"shared": [int(name) if name.isdecimal() else name for name in shared or ()], "evidence": evidence}
    audit_target(
        target,
        asked,
        samples=limit_of(samples, everything),
        seed=seed,
        figure=figure,
        html=html,
        device=device,
        as_json=as_json,
        verbose=verbose,
    )
