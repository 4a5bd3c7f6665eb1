"""What `windermere study` does."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import typer

from windermere.cli.console import exit_if_stopped, print_json, stderr, stdout, tell
from windermere.cli.elsewhere import device_for, read_ray
from windermere.cli.findings import files, tell_findings
from windermere.cli.reading import read_seconds, read_seeds
from windermere.cli.terminal import study_progress
from windermere.errors import RunError, UsageError
from windermere.nn.arithmetic import check_arithmetic
from windermere.paper.studies.folder import StudyFolder, read_tables, refuse_unless_folder_of
from windermere.paper.studies.judging import judge
from windermere.paper.studies.listing import list_studies
from windermere.paper.studies.paper_figures import draw_paper_figures
from windermere.paper.studies.registry import STUDIES, find_study
from windermere.paper.studies.running import Choice, Ended, draw_study, run_study
from windermere.paper.studies.study import Study
from windermere.paper.studies.summary import write_summary
from windermere.paper.training import StopSign, stop_sign

RESULTS, QUICK = Path("results"), Path("runs/quick")
OUR_PAGE = Path("docs/results.md")


def show_studies(*, as_json: bool) -> None:
    listed = list_studies(STUDIES, RESULTS, QUICK)
    if as_json:
        print_json(
            [{**asdict(study), "cost": study.cost and {**asdict(study.cost), "unit": "min"}} for study in listed]
        )
        return
    for study in listed:
        names = " or ".join([study.name, *study.figures[:1]])
        tell(f"{names}  ({study.paper})")
        tell(study.what, indent=4)
        here = "; ".join(map(str, study.here)) or "nothing yet"
        tell(f"takes {study.cost or 'an unknown time'}. Here: {here}", indent=4)


def run_one(
    name: str, out: Path | None, given: Mapping[str, str | None], *, quick: bool, time_limit: str | None
) -> None:
    """With the flags that were given; None is one that was not."""
    study = find_study(name)
    if name != study.name:
        stderr.print(f"{name} is the study {study.name} ({study.paper})", soft_wrap=True)
    name, folder = study.name, _folder(study, out, quick)
    seeds, device, arithmetic = given["--seeds"], given["--device"], given["--arithmetic"]
    only = "*" if given["--only"] is None else given["--only"]
    if not study.planned(quick):
        _refuse_flags_of_training(name, {**given, "--time-limit": time_limit})
    elif not study.runs(quick):
        _refuse_flags_of_devices(study, given)
    chosen = {} if seeds is None else {"seeds": read_seeds(seeds)}
    rounding = None if arithmetic is None else check_arithmetic(arithmetic)
    share = given["--gpu-share"]
    cluster = read_ray(given["--ray"], None if share is None else float(share))
    choice = Choice(quick=quick, device=device_for(device, cluster), only=only, arithmetic=rounding, **chosen)
    limit = read_seconds(time_limit)
    # What is computed at once cannot stop in good order: there Ctrl-C acts as ever, and no table is written.
    signs = stop_sign(limit) if study.planned(quick) else nullcontext(StopSign())
    with signs as sign, study_progress(name, sign) as report:
        ended = run_study(study, folder, choice, sign=sign, report=report, cluster=cluster)
    if read_tables(folder, study)[study.main]:  # else it was stopped before its first run ended
        tell_findings(judge(study, folder, STUDIES), folder)
    if quick:
        tell("this was the quick study, scaled down: its numbers are not the paper's")
    _print(ended, folder, _command(name, folder, quick, given))


def draw_one(name: str, out: Path | None, *, quick: bool) -> None:
    study = find_study(name)
    folder = _folder(study, out, quick)
    figures = draw_study(study, folder)
    if not figures:
        raise RunError(f"{folder} has no table to draw from: run the study first, or name its folder with --out")
    tell(files(folder, figures))


def merge_into(name: str, out: Path | None, others: Sequence[Path], *, quick: bool) -> None:
    study = find_study(name)
    path = _folder(study, out, quick)
    for other in others:
        refuse_unless_folder_of(other, study, quick=quick)
    folder = StudyFolder(path, study, quick=quick)
    for other in others:
        done, begun = folder.merge(other)
        stdout.print(f"{other}: {done} trained seeds of runs and {begun} run folders taken over", soft_wrap=True)
    tell(files(path, draw_study(study, path)))


def write_page(results: Path, page: Path | None) -> None:
    """Ours is a page of the documentation; elsewhere it lies with the results."""
    page = page or (OUR_PAGE if OUR_PAGE.exists() else results / OUR_PAGE.name)
    write_summary(results, page)
    tell(f"page: {page}")


def draw_for_print(results: Path, out: Path) -> None:
    tell(files(out, draw_paper_figures(results, out)))


def _refuse_flags_of_training(name: str, given: Mapping[str, str | None]) -> None:
    """Refuses flags of training for a study that trains nothing, since they would change nothing."""
    for flag, value in given.items():
        if value is not None:
            raise UsageError(
                f"{flag} is for studies that train models, and '{name}' trains none, it is computed at once: leave it "
                "out"
            )


def _refuse_flags_of_devices(study: Study, given: Mapping[str, str | None]) -> None:
    """Refuses flags that change nothing where a study trains with a loop of its own."""
    for flag in ("--ray", "--gpu-share"):
        if given[flag] is not None:
            raise UsageError(f"'{study.name}' trains with a loop of its own, in this process: leave {flag} out")
    if given["--device"] is not None and not study.on_devices:
        raise UsageError(f"'{study.name}' trains on the CPU in float32 and nothing else: leave --device out")
    if given["--arithmetic"] is not None:
        where = "" if study.on_devices else " on the CPU"
        raise UsageError(f"'{study.name}' trains{where} in float32 and nothing else: leave --arithmetic out")


def _folder(study: Study, out: Path | None, quick: bool) -> Path:
    return out or (QUICK if quick else RESULTS) / study.name


def _command(name: str, folder: Path, quick: bool, given: Mapping[str, str | None]) -> str:
    """The command that continues the study with the same runs and seeds."""
    words = ["windermere", "study", "run", name, "--out", str(folder), *(["--quick"] if quick else [])]
    typed = [word for flag, value in given.items() if value is not None for word in (flag, value) if word]
    return shlex.join([*words, *typed])


def _print(ended: Ended, folder: Path, again: str) -> None:
    for run, seeds in ended.diverged.items():
        stdout.print(f"{run}: seeds {', '.join(map(str, seeds))} diverged and are left out", soft_wrap=True)
    tell(files(folder, ended.figures))
    if ended.idle:
        advice = "to train them yourself, name another folder with --out"
        stderr.print(f"nothing was trained: {folder} has all these runs and seeds already; {advice}", soft_wrap=True)
    if ended.left:
        many = len(ended.left)
        what = f"{many} runs are" if many > 1 else f"the run {ended.left[0]} is"
        stderr.print(f"stopped ({ended.reason}), {what} not done; go on with: {again}", soft_wrap=True)
    exit_if_stopped(ended.reason)
    if ended.failed:
        raise typer.Exit(1)
