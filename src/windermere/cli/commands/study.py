"""`windermere study`: the paper's experiments, one command each."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.cli.names import FIGURES, STUDIES, completing
from windermere.cli.options import FLAG, Arithmetic, AsJson, Device, GpuShare, Ray, RayCommand, TimeLimit
from windermere.starting import importing

NAMES = (*STUDIES, *FIGURES)
app = typer.Typer(no_args_is_help=True, help="Rerun the paper's experiments: every figure and table has a name.")

Name = Annotated[
    str,
    typer.Argument(
        help="A study, or a figure such as figure4: see `windermere study list`.", autocompletion=completing(NAMES)
    ),
]
Quick = Annotated[bool, typer.Option("--quick", metavar=FLAG, help="Scaled down, to minutes on a laptop.")]
QuickOne = Annotated[bool, typer.Option("--quick", metavar=FLAG, help="The folder of the quick study.")]
Out = Annotated[Path | None, typer.Option(help="Folder. Default: results/NAME, or runs/quick/NAME with --quick.")]


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """All studies: where the paper has each, what it costs, and what of it is there already."""
    with importing():
        from windermere.cli.study import show_studies
    show_studies(as_json=as_json)


@app.command("run", cls=RayCommand)
def run_command(
    name: Name,
    quick: Quick = False,
    seeds: Annotated[
        str | None,
        typer.Option(help="How many (5 means 0 to 4), or which: 3,7,8. Default: 5; with --quick on images, one."),
    ] = None,
    device: Device = None,
    out: Out = None,
    time_limit: TimeLimit = None,
    arithmetic: Arithmetic = None,
    only: Annotated[str, typer.Option(help="A pattern for the runs' names: 'euler-*'.")] = "*",
    ray: Ray = None,
    gpu_share: GpuShare = None,
) -> None:
    """Train and measure what is not done yet, then draw. Started again, it goes on where it was.

    Example: windermere study run sphere2-fixed --quick
    """
    with importing():
        from windermere.cli.study import run_one
    given = {"--seeds": seeds, "--device": device, "--arithmetic": arithmetic, "--only": only if only != "*" else None}
    given |= {"--ray": ray, "--gpu-share": None if gpu_share is None else str(gpu_share)}
    run_one(name, out, given, quick=quick, time_limit=time_limit)


@app.command("draw")
def draw_command(name: Name, quick: QuickOne = False, out: Out = None) -> None:
    """Draw a study's figures again from its tables."""
    with importing():
        from windermere.cli.study import draw_one
    draw_one(name, out, quick=quick)


@app.command("merge")
def merge_command(
    name: Name,
    others: Annotated[list[Path], typer.Argument(help="Folders of the same study, from other machines or sittings.")],
    quick: QuickOne = False,
    out: Out = None,
) -> None:
    """Take over what other folders of a study have done or begun."""
    with importing():
        from windermere.cli.study import merge_into
    merge_into(name, out, others, quick=quick)


@app.command("summary")
def summary_command(
    results: Annotated[Path, typer.Option(help="Folder of studies' folders.")] = Path("results"),
    page: Annotated[
        Path | None,
        typer.Option(
            help="Markdown page to write. Default: docs/results.md where there is one, else results.md in that folder."
        ),
    ] = None,
) -> None:
    """Write the page of results: every study's figures, findings beside the paper's claims, and where it was made."""
    with importing():
        from windermere.cli.study import write_page
    write_page(results, page)


@app.command("figures")
def figures_command(
    results: Annotated[Path, typer.Option(help="Folder of studies' folders.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("results/paper"),
) -> None:
    """Draw the paper's figures and its table in the paper's layout, as PDFs for print, from the tables alone."""
    with importing():
        from windermere.cli.study import draw_for_print
    draw_for_print(results, out)
