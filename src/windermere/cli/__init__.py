"""The command line: parse, call one function, print. Answers go to standard output, progress to standard error."""

import logging
import os
import re
import sys
from typing import Annotated, NoReturn

from windermere.starting import INTERRUPTED, importing

with importing():
    import typer

    import windermere
    from windermere.cli.advice import sentence_of
    from windermere.cli.commands import data, study
    from windermere.cli.commands.audit import audit_command
    from windermere.cli.commands.demo import demo_command
    from windermere.cli.commands.evaluate import evaluate_command
    from windermere.cli.commands.report import report_command
    from windermere.cli.commands.train import train_command
    from windermere.cli.console import stderr, stdout
    from windermere.cli.options import FLAG, RayCommand
    from windermere.errors import WindermereError, describe_failure, is_device_failure, is_out_of_memory

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is your neural ODE really an ODE? Train Neural ODEs, audit them, test them with other solvers, "
    "and rerun the paper's experiments.",
)
app.command("train", cls=RayCommand)(train_command)
app.command("audit")(audit_command)
app.command("evaluate")(evaluate_command)
app.command("report")(report_command)
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
    if _has_lost_its_gpu():  # whatever is freed on the way out would fail again, and abort the process
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    sys.exit(1)


def _has_lost_its_gpu() -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


SMALLER = {
    "train": "take fewer --seeds at once, a smaller --batch-size, fewer --steps or dimensions or --gradient checkpoint",
    "evaluate": "take fewer --steps, or another --device",
    "audit": "look at fewer --samples, or at one --seed",
    "study": "take fewer --seeds at once",
}
"""What to do so that less memory is needed, by command."""


def _too_large(error: BaseException) -> str:
    asked = re.search(r"allocate ([\d.,]+ \w+)", str(error))
    how = f" ({asked[1]} more were asked for)" if asked else ""
    advice = SMALLER.get(next(iter(sys.argv[1:]), ""), "close other programs to free some memory")
    return f"this does not fit into the memory{how}: {advice}"


def main() -> None:
    """The entry point. An error of ours, or of the machine's, is one sentence and exit code 1. Typer answers unknown
    flags (exit code 2), Ctrl-C outside of training (130) and a pipe that nobody reads."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells, in two lines, where it cannot keep its fonts
    try:
        app()
    except KeyboardInterrupt:  # before typer is at work
        sys.exit(INTERRUPTED)
    except WindermereError as error:
        _fail(sentence_of(error))
    except (MemoryError, RuntimeError) as error:
        if is_device_failure(error):
            _fail(f"the device failed ({describe_failure(error)}): try again, or with --device cpu")
        if not is_out_of_memory(error):
            raise
        _fail(_too_large(error))
    except OSError as error:
        _fail(f"the machine refused ({error}): make room on the disk or change the permissions, then try again")
