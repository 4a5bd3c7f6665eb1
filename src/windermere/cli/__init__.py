"""The command line: parse, call one function, print. Answers go to standard output, progress to standard error."""

import sys
from typing import Annotated, NoReturn

import typer

import windermere
from windermere.cli import data, study
from windermere.cli.audit import audit_command
from windermere.cli.demo import demo_command
from windermere.cli.evaluate import evaluate_command
from windermere.cli.options import FLAG, stdout
from windermere.cli.train import train_command
from windermere.errors import WindermereError
from windermere.terminal import stderr

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is your neural ODE really an ODE? Train Neural ODEs, audit them, test them with other solvers, "
    "and rerun the paper's experiments.",
)
app.command("train")(train_command)
app.command("audit")(audit_command)
app.command("evaluate")(evaluate_command)
app.command("demo")(demo_command)
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", metavar=FLAG, help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        stdout.print(f"windermere {windermere.__version__}")
        raise typer.Exit


def _fail(message: str) -> NoReturn:
    stderr.print("error:", style="bold red", end=" ")
    stderr.print(message, soft_wrap=True)
    sys.exit(1)


def main() -> None:
    """The entry point: an error of ours, or of the machine's, is one sentence and exit code 1. Flags that are not there
    are typer's, code 2; so are Ctrl-C outside of training, code 130, and a pipe that nobody reads."""
    try:
        app()
    except WindermereError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"the machine refused ({error}): make room or mend what may be read and written, and try again")
