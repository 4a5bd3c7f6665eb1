"""Flags that several commands share."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import typer
from typer.core import TyperCommand

from windermere.cli.names import METHODS, completing

SOLVER = "Solver"
"""A heading of the help texts."""
Method = Annotated[
    str | None,
    typer.Option(
        "--solver", help=f"Method: {', '.join(METHODS)}.", rich_help_panel=SOLVER, autocompletion=completing(METHODS)
    ),
]
Steps = Annotated[
    int | None, typer.Option(help="Number of equal steps over the time span [0, 1].", rich_help_panel=SOLVER)
]
Step = Annotated[
    float | None,
    typer.Option(help="Step size; the last step is shortened to land on the end.", rich_help_panel=SOLVER),
]
Tolerance = Annotated[
    float | None, typer.Option(help="Adaptive steps with rtol = atol = this.", rich_help_panel=SOLVER)
]
Control = Annotated[
    str | None,
    typer.Option(help="With --tolerance: whose error is controlled, batch or sample.", rich_help_panel=SOLVER),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: cpu)")]
TimeLimit = Annotated[str | None, typer.Option(help="Save and stop after this time: 90s, 10m, 2h.")]
ARITHMETIC = "How products in an image network's field are rounded: float32 (default), tf32 or bfloat16."
Arithmetic = Annotated[str | None, typer.Option(help=ARITHMETIC)]
RAY = "Train by Ray: on the cluster at this address, at RAY_ADDRESS, or on this machine."
Ray = Annotated[str | None, typer.Option("--ray", metavar="[ADDRESS]", help=RAY)]
GpuShare = Annotated[
    float | None, typer.Option(help="With --ray: how much of a GPU each run gets. Default: 0.25; on images, 0.5.")
]
ADDRESS = re.compile(r"auto|local|localhost|[0-9.]+|(?!-).*:.*")
"""What is taken for one behind `--ray`, and not for the name of a study."""
FLAG = ""
"""The metavar of flags: typer would print <bool>, as if they took a value."""
AsJson = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print the answer as JSON.")]


class RayCommand(TyperCommand):
    """A command whose flag `--ray` may stand alone: what follows is its address only if it looks like one."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, list(_with_address(args)))


def _with_address(args: list[str]) -> Iterator[str]:
    for word, after in pairwise([*args, ""]):
        yield "--ray=" if word == "--ray" and not ADDRESS.fullmatch(after) else word
