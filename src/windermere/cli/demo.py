"""What `windermere demo` does."""

from pathlib import Path

from windermere.cli.console import exit_if_stopped, folding, stderr, stdout
from windermere.cli.terminal import training_progress
from windermere.paper import demo as demo_study


def show_demo(out: Path) -> None:
    try:
        result = demo_study.run(out, progress=training_progress)
    except demo_study.Stopped as stopped:
        stderr.print(str(stopped), soft_wrap=True)
        exit_if_stopped(stopped.reason)
        raise
    stdout.print(f"page: {result.page}", soft_wrap=True)
    table = folding("trained with", "own solver", "the flow itself", "verdict")
    for entry in result.entries:
        verdict = entry.verdict
        numbers = (verdict.digits(verdict.own.metric), verdict.digits(verdict.reference.metric))
        table.add_row(verdict.own.solver, *numbers, demo_study.WORDS[verdict.outcome])
    stdout.print(table)
    for entry in result.entries:
        stdout.print(f"{entry.verdict.sentence} {entry.verdict.recommendation}", soft_wrap=True)
        stdout.print(f"  audit: {entry.figure}, run: {entry.run}", soft_wrap=True)
    stdout.print(f"figure: {result.figure}", soft_wrap=True)
    stdout.print(f"Open it in a browser and drag the step: {result.page.resolve().as_uri()}", soft_wrap=True)
