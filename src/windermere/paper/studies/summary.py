"""The page of results: every study that was run, its figures and findings, where it was made, and what we make of it.

Written from the folders in results/ alone: the same folders give the same page.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windermere.errors import RunError
from windermere.paper.figures.losses_figure import draw_losses
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.exclusions import claim_of, exclusions, table_row
from windermere.paper.studies.folder import (
    about_runs,
    diverged,
    is_quick,
    read_provenance,
    read_tables,
    refuse_another_study,
    seeds_by_run,
)
from windermere.paper.studies.fresh_seeds import fresh_seeds
from windermere.paper.studies.grid_comparisons import loss_panels
from windermere.paper.studies.grids import GRIDS
from windermere.paper.studies.judging import NOTES, WORDS, beside, judge, word
from windermere.paper.studies.registry import ALL
from windermere.paper.studies.rows import GRID, MAIN, Tables, grouped
from windermere.paper.studies.study import Finding, Study
from windermere.paper.studies.summary_words import GLANCE, INTRO, LEGEND, RULES, SHORT
from windermere.records import refuse_unless_file, write_atomically
from windermere.records.atomic import read_bytes

OPENING = "opening.md"
"""Ours, written by hand: what agrees, what differs and why, in ten lines. It lies beside the studies' folders."""
GLANCE_NAME = "at-a-glance"
APART = "apart"
COLUMNS = (*WORDS.values(), APART)
SEEDS = "-seeds"
"""How the names of figures end that show every seed: these are folded."""


def write_summary(results: Path, page: Path, studies: Sequence[Study] = ALL) -> None:
    """A section for every study that has a table in `results`."""
    refuse_unless_file(page, "written")  # before any figure is drawn
    there = [study for study in studies if (results / study.name / f"{MAIN}.csv").exists()]
    if not there:
        raise RunError(f"{results} holds no study's table: run a study first, or name another folder by results=...")
    for study in there:
        refuse_another_study(results / study.name, study)
    missing = [study.name for study in studies if study not in there]
    tables = {study.name: read_tables(results / study.name, study) for study in there}
    others = {study.name: study for study in there}
    found = {study.name: judge(study, results / study.name, others) for study in there}
    parts = [INTRO, *_opening(results), LEGEND]
    if grids := loss_panels(tables[study.name][GRID] for study in GRIDS if study in there):
        draw_losses(grids, THRESHOLD, results / f"{GLANCE_NAME}.png")
        parts += [f"![{GLANCE_NAME}]({_relative(results / GLANCE_NAME, page.parent)}.png)\n", GLANCE]
    if short := list(_in_short(found)):
        parts += [SHORT, "\n".join([*short, ""])]
    parts.append(_overview(there, tables, found))
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    parts += fresh_seeds(there, tables)
    parts += exclusions(there, tables)
    parts.append(RULES)
    for study in there:
        near = Tables({**tables[study.name], **beside(study, results / study.name, others)})
        section = _section(study, results / study.name, near, found[study.name], page.parent)
        parts.append("\n".join(section))
    write_atomically(page, "\n".join(parts).encode())


def _opening(results: Path) -> Iterator[str]:
    if (results / OPENING).exists():
        yield f"{read_bytes(results / OPENING).decode().strip()}\n"


def _in_short(found: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Claims that are made of several things: of how many they hold, and of which not."""
    claims = grouped(
        (finding.claim, (study, finding))
        for study, findings in found.items()
        for finding in findings
        if finding.case and not finding.beyond
    )
    if claims:
        yield from ("| the paper | agrees | differs | open | apart |", "|---|---|---|---|---|")
    for claim, cases in claims.items():
        counted = [(study, finding) for study, finding in cases if not finding.apart]
        agree, *others = (
            [f"[{finding.case}](#{study})" for study, finding in counted if finding.agrees is told] for told in WORDS
        )
        words = f"{cases[0][1].case}: {claim}" if len(cases) == 1 else claim
        apart = Counter(WORDS[finding.agrees] for _, finding in cases if finding.apart)
        number = f"{len(agree)} of {len(counted)}" if counted else ""
        told_apart = ", ".join(f"{apart[how]} {how}" for how in WORDS.values() if apart[how])
        yield table_row(words[0].upper() + words[1:], number, *map("; ".join, others), told_apart)


def _overview(studies: Sequence[Study], tables: Mapping[str, Tables], found: Mapping[str, Sequence[Finding]]) -> str:
    """How much was run, and how many claims agree."""
    lines = ["| study | paper | runs | agree | differ | open | apart |", "|---|---|---|---|---|---|---|"]
    total = Counter[str]()
    for study in studies:
        counts = Counter(_column(finding) for finding in found[study.name] if not finding.beyond)
        total += counts
        cells = (f"[{study.name}](#{study.name})", study.paper, _runs(study, tables[study.name]))
        lines.append(table_row(*cells, *(str(counts[column]) for column in COLUMNS)))
    lines.append(table_row("all", "", "", *(str(total[column]) for column in COLUMNS)))
    return "\n".join([*lines, ""])


def _column(finding: Finding) -> str:
    return APART if finding.apart else WORDS[finding.agrees]


def _runs(study: Study, tables: Tables) -> str:
    """How many of the planned ones have any seed."""
    planned, done = study.planned(False), {row.run for row in about_runs(tables[study.main])}
    return f"{len(done & {*planned})} of {len(planned)}" if planned else ""


def _section(study: Study, folder: Path, tables: Tables, findings: Sequence[Finding], page: Path) -> Iterator[str]:
    yield from (f"## {study.name}", "", f"{study.paper}: {study.what}.", "")
    figures = sorted(folder.glob("*.png"))
    yield from _images(study, (figure for figure in figures if not figure.stem.endswith(SEEDS)), page)
    if seeds := [figure for figure in figures if figure.stem.endswith(SEEDS)]:
        yield from ("<details>", "<summary>Every seed</summary>", "")
        yield from _images(study, seeds, page)
        yield from ("</details>", "")
    for text in sorted(set(folder.glob("*.md")) - {folder / NOTES}):
        yield f"{read_bytes(text).decode().strip()}\n"
    if findings:
        yield from ("| the paper | ours | |", "|---|---|---|")
        for finding in findings:
            yield table_row(claim_of(finding), finding.ours, word(finding))
        yield ""
    if more := study.text(tables):
        yield f"{more.strip()}\n"
    yield from (f"{line}\n" for line in (_seeds(study, tables), _provenance(study, folder)) if line)
    if (folder / NOTES).exists():
        yield f"{read_bytes(folder / NOTES).decode().strip()}\n"


def _images(study: Study, figures: Iterable[Path], page: Path) -> Iterator[str]:
    for figure in figures:
        yield from (f"![{study.name}: {figure.stem}]({_relative(figure, page)})", "")


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _seeds(study: Study, tables: Tables) -> str:
    """How many each run has, and which are left out."""
    if not (seeds := seeds_by_run(rows := about_runs(tables[study.main]))):
        return ""
    counts = sorted({len(own) for own in seeds.values()})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    lost = [f"seed {row.seed} of {row.run} (iteration {at})" for row, at in diverged(rows)]
    words = f"Diverged, and left out: {', '.join(lost)}." if lost else "None diverged."
    return f"Runs: {len(seeds)}. Seeds of each: {many}. {study.left_out(tables) or words}"


def _provenance(study: Study, folder: Path) -> str:
    """A sentence that says where and when all runs were made; empty where that was not recorded."""
    every = list(read_provenance(folder).values())
    lenders = sorted({how["borrowed"] for how in every if how.get("borrowed")})
    others = f"Taken from {', '.join(lenders)} (see there)." if lenders else ""
    if not (own := [how for how in every if not how.get("borrowed")]):
        return others
    made = [*own, *({**how, **sitting} for how in own for sitting in how.get("resumed", ()))]
    commits = sorted({_commit(how) for how in made})
    devices = sorted({_device(how) for how in made})
    dates = sorted({str(how["finished"])[:10] for how in made if how.get("finished")})
    seconds = sum(float(how.get("seconds") or 0) for how in own)
    took = f", {_duration(seconds)}{' of training' if study.runs(False) else ''}" if seconds else ""
    when = "" if not dates else f", {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    quick = " A quick version, scaled down." if is_quick(folder) else ""
    return f"Made at {', '.join(commits)} on {', '.join(devices)}{when}{took}.{quick} {others}".rstrip()


def _device(how: Mapping[str, Any]) -> str:
    """The device's name, followed by the arithmetic where that is not the usual float32."""
    name, arithmetic = how.get("device_name") or how.get("device") or "an unknown device", how.get("arithmetic")
    return str(name) if arithmetic in (None, "float32") else f"{name} in {arithmetic}"


def _commit(how: Mapping[str, Any]) -> str:
    if not how.get("commit"):
        return "an unknown commit"
    return f"{how['commit'][:10]}{' with changes' if how.get('dirty') else ''}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under a second"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
