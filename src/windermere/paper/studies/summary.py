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
from windermere.paper.studies.folder import (
    about_runs,
    diverged,
    is_quick,
    read_provenance,
    read_tables,
    refuse_another_study,
)
from windermere.paper.studies.grid_comparisons import loss_panels
from windermere.paper.studies.grids import GRIDS
from windermere.paper.studies.judging import NOTES, WORDS, judge
from windermere.paper.studies.registry import ALL
from windermere.paper.studies.rows import GRID, MAIN, Tables
from windermere.paper.studies.study import Finding, Study
from windermere.records import refuse_unless_file, write_atomically
from windermere.records.atomic import read_bytes

GLANCE_NAME = "at-a-glance"
INTRO = """\
# Results

Every experiment of the paper that was rerun, in its order: the paper's claims, our numbers beside them, and whether
they agree. `windermere study summary` writes this page from the tables, figures and provenance in `results/`.

- **agrees**, **differs**: by the [rules](#how-claims-are-judged) below.
- **open**: the numbers do not tell yet. A claim about a whole grid is open until all its runs are there.
- **ours**: the paper does not show it, so it is not judged.

A claim is judged in the same way on one seed as on five. Where it rests on one seed, the text says so.
"""
GLANCE = """\
Trained with few evaluations of the field, models lose accuracy under a finer solver: they are tied to their own.
Trained with enough of them, they lose none. Each line is a method, each point a step or tolerance of training: the
mean over seeds, with a bar from the least to the most. The finer solver is rk4 at half the step, or dopri54 at a tenth
of the tolerance.
"""
SHORT = """\
The paper's claims about training: how many of their cases agree with ours, and which do not.
"""
RULES = """\
## How claims are judged

- An **accuracy** agrees with a printed one if they differ by no more than both standard deviations over seeds
  together. It is **as accurate** as another if it is no further below. With five seeds each, that is two to three
  standard errors: it does not prove that the means are the same.
- A **cost** agrees if it differs by no more than a quarter, a **critical number of steps** within a factor of two.
- Accuracy **drops** if it falls by more than 0.1 in the mean over seeds. This is the threshold of Algorithm 2.
- Accuracies show **no clear dependence** if their means lie within 0.1. A smaller trend, where one half of a grid is
  lower, is told. (The paper allows for some, as learning rates were not tuned for each step.)
- A **decline**, and **lower**, mean: by more than 0.01 and by more than two standard errors. Models are taken as
  independent, though they share seeds. Large tolerances are the coarse half of a grid, small ones the fine half.
- A **very high** accuracy is above 0.95. In Figure 1, what holds for some seeds and not for others is open.
- Adaptation has **settled** in the second half of training, Algorithms 2 and 3 from their first correction on.
- A **swing** is the standard deviation of log2 of the step or tolerance once settled. A slow drift counts too. To
  **fluctuate** is to swing by more than one raise of Algorithm 2 does (a factor of 1.1: 0.14), in the mean over seeds.
- Final values are **different** if their log2 deviates by more between seeds than within one.
- A model is **corrected** if, after a review that failed, the next one passes at least as often as all reviews do.
- A first step is **too small** if training takes more than twice the evaluations per iteration that it takes once
  settled.
- **Far fewer** steps are fewer than half.
- Each claim is judged by itself. Nothing corrects for how many there are.

## Where the paper is silent, or prints two things

- **Critical step** of a grid: the smallest number of steps (largest tolerance) from which on all models pass the check
  of Algorithm 2 on the test set, in the mean over the seeds that trained. It is given with the last entry that fails:
  4-8 says that 4 steps fail, and that 8 and more pass. Grids are checked by the finest solver of their tests (rk4 at
  half the step, dopri54 at a tenth of the tolerance), Table 1 by Algorithm 2's own, which is midpoint.
- **Tolerances** of grids: 1e-1 to 1e-6, as far as they train, and to 1e-4 on images. **rk4 on images**: 1 to 16 steps.
  The **adjoint** is solved with the forward's tolerance. Nothing is tested with a step longer than the time span.
- **Arithmetic** on images: [bfloat16 products](runs.md#arithmetic) in training and in tests, where a section says so.
  Elsewhere float32.
- **Spheres**: the paper prints neither radii nor numbers of points (ours: [Sphere2](#sphere2-data)). **Sphere3, 10
  and 900** take Sphere2's settings. Sphere900, whose classes are far apart, takes 2000 iterations.
- **A seed** draws weights (Kaiming normal, biases zero) and the order of batches. All seeds have the same data. Pixels
  lie in [0, 1], and nothing is augmented.
- **Iterations** on images are whole epochs with the last batch dropped: 30 x 234 and 40 x 195.
- **CIFAR-10's learning rate** is printed as 1e-3. The printed accuracies lie between ours with 1e-3 and with 1e-4, so
  both are run. (Of adapted runs, Table 1's pair has both, the others have 1e-3.)
- **Algorithm 2**: in the appendix's listing `h = h_new` stands in one branch only. Ours assigns in both. The step goes
  no lower than 1/500 (the authors' budget). **Algorithm 3**: the training tolerance goes no lower than 2.5e-7, which
  float32 resolves. Checks below that are solved in float64.
- **Cost** is evaluations of the field per iteration, those of all checks included. The paper's Table 1 counts one
  more than the steps.
- **Figure 1** does not print its small step. Ours is 1/128. **Figure 3** names no parameters. Ours are alpha 1.30,
  beta 0.30, gamma 4.3, delta 1.61, T = 1. **Appendix A** starts its second set of points at x = 1.5 in the caption and
  at 1.4 in the text. Ours starts at 1.5. **Figure 5** does not say what (c, d) were trained on. Ours is Sphere2.
- **Seeds** that diverged are named, and left out. Grids are averaged over the seeds that trained: those with an
  accuracy of at least 0.8 with their own solver (0.35 on CIFAR-10). If the claim is that training itself does poorly,
  all seeds count, diverged ones as guessing. A test solve that fails classifies nothing.
"""
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
    parts = [INTRO]
    if grids := loss_panels(tables[study.name][GRID] for study in GRIDS if study in there):
        draw_losses(grids, THRESHOLD, results / f"{GLANCE_NAME}.png")
        parts += [f"![{GLANCE_NAME}]({_relative(results / GLANCE_NAME, page.parent)}.png)\n", GLANCE]
    if short := list(_in_short(found)):
        parts += [SHORT, "\n".join([*short, ""])]
    parts.append(_overview(there, tables, found))
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    parts.append(RULES)
    for study in there:
        section = _section(study, results / study.name, tables[study.name], found[study.name], page.parent)
        parts.append("\n".join(section))
    write_atomically(page, "\n".join(parts).encode())


def _in_short(found: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Claims that are made of several things: of how many they hold, and of which not."""
    claims: dict[str, list[tuple[str, Finding]]] = {}
    for study, findings in found.items():
        for finding in findings:
            if finding.case and not finding.beyond:
                claims.setdefault(finding.claim, []).append((study, finding))
    if claims:
        yield from ("| the paper | agrees | differs | open |", "|---|---|---|---|")
    for claim, cases in claims.items():
        agree, *others = (
            [f"[{finding.case}](#{study})" for study, finding in cases if finding.agrees is told] for told in WORDS
        )
        words = f"{cases[0][1].case}: {claim}" if len(cases) == 1 else claim
        yield _row(words[0].upper() + words[1:], f"{len(agree)} of {len(cases)}", *map("; ".join, others))


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
            claim = f"{finding.case}: {finding.claim}" if finding.case else finding.claim
            yield _row(claim, finding.ours, "ours" if finding.beyond else WORDS[finding.agrees])
        yield ""
    yield from (f"{line}\n" for line in (_seeds(study, tables), _provenance(study, folder)) if line)
    if (folder / NOTES).exists():
        yield f"{read_bytes(folder / NOTES).decode().strip()}\n"


def _images(study: Study, figures: Iterable[Path], page: Path) -> Iterator[str]:
    for figure in figures:
        yield from (f"![{study.name}: {figure.stem}]({_relative(figure, page)})", "")


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _seeds(study: Study, tables: Tables) -> str:
    """How many each run has, and which are left out."""
    seeds: dict[str, set[int]] = {}
    for row in (rows := about_runs(tables[study.main])):
        seeds.setdefault(row.run, set()).add(row.seed)
    if not seeds:
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
