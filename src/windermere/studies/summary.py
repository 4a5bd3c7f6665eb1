"""The page of results: every study that was run, its figures and findings, where it was made, and what we make of it.

Written from the folders in results/ alone: the same folders give the same page.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windermere.records import Row, read_json, write_atomically
from windermere.studies.folder import from_tables, read_provenance, read_tables, refuse_another_study
from windermere.studies.registry import ALL
from windermere.studies.study import MAIN, Finding, Study, Tables

WORDS = {True: "agrees", False: "differs", None: "open"}
NOTES = "notes.md"
"""Ours, written by hand: why we think something differs. All other text of a folder comes from its study."""
INTRO = """\
# Results

Every experiment of the paper that was rerun, in its order. Tables, figures and provenance are in `results/`; this
page is made of them by `windermere study summary`. A finding is *open* where what is there does not tell: a claim about
a whole grid, until all its runs are there. What rests on one seed is judged as what rests on five, and says so. What
the paper does not show is marked *ours*, and not judged.

An accuracy agrees with a printed one if they differ by no more than both spreads (standard deviations over seeds)
together, and is *as accurate* as another if it is no further below it. With five seeds each, that is two to three
standard errors of their difference: seeds of one could be seeds of the other, which does not prove the means the same.
A cost agrees if it differs by no more than a quarter, a critical number of steps within a factor of two. *Dropping*
is losing more than 0.1, the threshold of Algorithm 2, in the mean over seeds, and accuracies show *no clear dependence*
if their means lie within it; where one half of a grid is *lower*, that smaller trend is told (the paper allows for
some, as learning rates were not tuned for each step). Adaptation has *settled* in the second half of training, from its
first correction on; to *fluctuate* is to have a standard deviation of log2 above that of one raise of Algorithm 2 (a
factor of 1.1: 0.14), in the mean over seeds; *swings* are that deviation, and a slow drift counts as one. Final values
are *different* if their log2 deviates by more between seeds than within one. A model is *corrected* if after a review
that failed the next one passes as often as all reviews do, or more often. A first step is *too small* if training takes
more than twice the evaluations per iteration that it takes once settled: it may be far smaller than needed where it
soon grows. *Far fewer* steps are fewer than half. A *decline* is by more than 0.01 and by more than two standard
errors, models being taken as independent, though they share seeds; so is *lower*. Each claim is judged by itself, and
nothing corrects for how many there are.

## Where the paper is silent, or prints two things

- **Critical step** of a grid: the smallest number of steps (largest tolerance) from which on every entry's models
  pass the check of Algorithm 2 on the test set, averaged over the seeds that trained. It is given with the entry before
  it, the last that fails: 4-8 says that 4 steps fail and that 8 and more pass.
- **Tolerances** of grids: 1e-1 to 1e-6, as far as they train, and to 1e-4 on images. **rk4 on images**: 1 to 16 steps.
  The **adjoint** is solved with the forward's tolerance. Nothing is tested with a step longer than the time span.
- **Arithmetic** on images: bfloat16 products in training and in tests, where a section says so (docs/runs.md has what
  that changes); float32 elsewhere.
- **Sphere3, 10 and 900** take Sphere2's settings; Sphere900, whose classes are far apart, for 2000 iterations.
- **Iterations** on images are whole epochs with the last batch dropped: 30 x 234 and 40 x 195.
- **CIFAR-10's learning rate** is printed as 1e-3. The printed accuracies lie between ours with that and with 1e-4, so
  both are run.
- **Algorithm 2**: in the appendix's listing `h = h_new` stands in one branch only; both assign. The step goes no
  lower than 1/500 (the authors' budget). **Algorithm 3**: the training tolerance goes no lower than 2.5e-7, which
  float32 resolves; checks below what it resolves are solved in float64.
- **Cost** is evaluations of the field per iteration, those of all checks included. The paper's Table 1 counts one
  more than the steps.
- **Figure 3** names no parameters: ours are alpha 1.30, beta 0.30, gamma 4.3, delta 1.61, T = 1. **Appendix A**
  starts its second set of points at x = 1.5 in the caption and 1.4 in the text: ours at 1.5.
- **Seeds** that diverged are named, and left out. Grids are averaged over the seeds that trained: those with an
  accuracy of at least 0.8 with their own solver (0.35 on CIFAR-10). Where the claim is that training itself does
  poorly, all seeds count, diverged ones as guessing. A test solve that fails classifies nothing.
"""


def write_summary(results: Path, page: Path, studies: Sequence[Study] = ALL) -> None:
    """A section for every study that has a table in `results`."""
    there = [study for study in studies if (results / study.name / f"{MAIN}.csv").exists()]
    for study in there:
        refuse_another_study(results / study.name, study)
    missing = [study.name for study in studies if study not in there]
    tables = {study.name: read_tables(results / study.name) for study in there}
    found = dict[str, Sequence[Finding]]()
    for study in there:
        with from_tables(results / study.name):
            beside = {name: tables[name][MAIN] for name in study.beside if name in tables}
            found[study.name] = study.findings({**tables[study.name], **beside})
    parts = [INTRO, _overview(there, tables, found)]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    for study in there:
        section = _section(study, results / study.name, tables[study.name], found[study.name], page.parent)
        parts.append("\n".join(section))
    write_atomically(page, "\n".join(parts).encode())


def _overview(studies: Sequence[Study], tables: Mapping[str, Tables], found: Mapping[str, Sequence[Finding]]) -> str:
    """How much was run, and how many claims agree."""
    lines = ["| study | paper | runs | agree | differ | open |", "|---|---|---|---|---|---|"]
    for study in studies:
        counts = Counter(finding.agrees for finding in found[study.name] if not finding.beyond)
        cells = (f"[{study.name}](#{study.name})", study.paper, _runs(study, tables[study.name]))
        lines.append(_row(*cells, *(str(counts[agrees]) for agrees in WORDS)))
    return "\n".join([*lines, ""])


def _runs(study: Study, tables: Tables) -> str:
    """How many of the planned ones have any seed."""
    planned, done = study.runs(False), {row.get("run") for row in tables[MAIN]}
    return f"{len(done & set(planned))} of {len(planned)}" if planned else ""


def _section(study: Study, folder: Path, tables: Tables, findings: Sequence[Finding], page: Path) -> Iterator[str]:
    yield from (f"## {study.name}", "", f"{study.paper}: {study.what}.", "")
    for figure in sorted(folder.glob("*.png"), key=lambda path: (path.stem.endswith("-seeds"), path.stem)):
        yield from (f"![{study.name}: {figure.stem}]({_relative(figure, page)})", "")
    for text in sorted(set(folder.glob("*.md")) - {folder / NOTES}):
        yield f"{text.read_text().strip()}\n"
    if findings:
        yield from ("| the paper | ours | |", "|---|---|---|")
        for finding in findings:
            yield _row(finding.claim, finding.ours, "ours" if finding.beyond else WORDS[finding.agrees])
        yield ""
    yield from (f"{line}\n" for line in (_seeds(study, tables), _provenance(folder)) if line)
    if (folder / NOTES).exists():
        yield f"{(folder / NOTES).read_text().strip()}\n"


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _seeds(study: Study, tables: Tables) -> str:
    """How many each run has, and which are left out."""
    seeds: dict[str, set[int]] = {}
    for row in (rows := tables[MAIN]):
        if row.get("run") is not None and row.get("seed") is not None:
            seeds.setdefault(row["run"], set()).add(row["seed"])
    if not seeds:
        return ""
    counts = sorted({len(own) for own in seeds.values()})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    lost = [f"seed {r['seed']} of {r['run']} (iteration {r['diverged_at']})" for r in rows if _diverged(r)]
    diverged = f"Diverged, and left out: {', '.join(lost)}." if lost else "None diverged."
    return f"Runs: {len(seeds)}. Seeds of each: {many}. {study.left_out(tables) or diverged}"


def _diverged(row: Row) -> bool:
    return row.get("diverged_at") is not None


def _provenance(folder: Path) -> str:
    """Of all runs together; nothing where it was not kept."""
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
    took = f", {_duration(seconds)} of training" if seconds else ""
    when = "" if not dates else f", {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    quick = " A quick version, scaled down." if _is_quick(folder) else ""
    return f"Made at {', '.join(commits)} on {', '.join(devices)}{when}{took}.{quick} {others}".rstrip()


def _device(how: Mapping[str, Any]) -> str:
    """And its arithmetic, where it is not the usual."""
    name, arithmetic = how.get("device_name") or how.get("device") or "an unknown device", how.get("arithmetic")
    return str(name) if arithmetic in (None, "float32") else f"{name} in {arithmetic}"


def _commit(how: Mapping[str, Any]) -> str:
    if not how.get("commit"):
        return "an unknown commit"
    return f"{how['commit'][:10]}{' with changes' if how.get('dirty') else ''}"


def _is_quick(folder: Path) -> bool:
    return (folder / "study.json").exists() and bool(read_json(folder / "study.json").get("quick"))


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
