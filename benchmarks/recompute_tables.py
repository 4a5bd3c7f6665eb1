"""Tables of docs/recipes.md, tied-sampler.md, what-being-tied-costs.md and adaptation.md, row by row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.recompute import Row, Sentence, numbers, of_page, one_sample_p, rows
from benchmarks.recompute_adaptation import wilson

OUTCOMES = ("FLOW", "TIED", "COARSE", "UNDECIDED")


def by_run(study: str, column: str = "run") -> dict[str, list[Row]]:
    found = dict[str, list[Row]]()
    for row in rows(study):
        found.setdefault(row[column], []).append(row)
    return found


@of_page("docs/recipes.md")
def recipes_of_sphere2() -> Iterator[Sentence]:
    for name, of in by_run("recipes", "recipe").items():
        told, flows = Counter(row["outcome"] for row in of), numbers(of, "flow_accuracy")
        yield (
            "| `{}` | {:.1f} | {} of {} ({:.2f} to {:.2f}) | {} | {} | {:.3f} | {:.3f} | {:.3f} | {} |",
            *(name, fmean(numbers(of, "cost")), told["FLOW"], len(of), *wilson(of), told["TIED"], told["UNDECIDED"]),
            *(fmean(numbers(of, "accuracy")), fmean(flows), min(flows), sum(value > 0.9 for value in flows)),
        )


@of_page("docs/tied-sampler.md")
def samplers() -> Iterator[Sentence]:
    """Those on eight Gaussians by an MLP, and of digits at 14 x 14."""
    for study, start in (("tied-sampler", "gaussians-mlp"), ("tied-sampler-images", "mnist14-unet")):
        for name, of in by_run(study).items():
            loss, *through = name.removeprefix(f"{start}-").split("-")
            if not name.startswith(start) or loss == "matching" or "long" in through:
                continue
            adapted = "midpoint" in through[1:] or "euler" in through[1:]
            cells = [_ends(numbers(of, column)) for column in ("own", "flow")]
            cells += [_count(of, "tied"), _unsure(of), _count(of, "harmed"), _audits(of)]
            if adapted:
                cells += [f"{fmean(numbers(of, 'evaluations')):.1f}", _whole(numbers(of, "steps"))]
            head = ("-" if adapted else " ").join(through)
            yield "| {} | {} |" + " {} |" * len(cells), head, len(of), *cells


@of_page("docs/tied-sampler.md")
def longer_tuning() -> Iterator[Sentence]:
    """Of the seeds that were tuned for four times as long, and by a reward."""
    of = by_run("tied-sampler")
    for loss in ("energy", "reward"):
        longer = {n: of[f"gaussians-mlp-{loss}-euler-{n}-long"] for n in (4, 8, 16)}
        tied = {n: _count(some, "tied") for n, some in longer.items()}
        seeds = {row["seed"] for row in longer[16]}
        usual = {n: [r for r in of[f"gaussians-mlp-{loss}-euler-{n}"] if r["seed"] in seeds] for n in longer}
        if loss == "energy":
            told = (tied[4], len(longer[4]), int(tied[8]) + int(tied[16]), len(longer[8]) + len(longer[16]))
            yield "through 4 steps {} of {} tied, through 8 and 16 {} of {}", *told
            continue
        ends = [fmean(numbers(some[16], name)) for name in ("own", "flow") for some in (usual, longer)]
        yield "16 steps falls from {:.2g} to {:.2g} and the flow's from {:.2g} to {:.2g}", *ends
        yield "{} of {} are tied through 8 steps ({} in the usual time)", tied[8], len(seeds), _count(usual[8], "tied")
        yield "and {} of {} through 16 ({})", tied[16], len(seeds), _count(usual[16], "tied")


def _ends(values: Sequence[float]) -> str:
    return f"{fmean(values):.2g} ({min(values):.2g} to {max(values):.2g})"


def _whole(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _count(of: Sequence[Row], column: str) -> str:
    return str(sum(row[column] == "true" for row in of))


def _unsure(of: Sequence[Row]) -> str:
    """Neither surely worse under the flow than is allowed, nor surely not."""
    return str(sum(float(row["excess_low"]) <= 0 < float(row["excess_high"]) for row in of))


def _audits(of: Sequence[Row]) -> str:
    told = Counter(row["audit"] for row in of)
    return ", ".join(f"{told[name]} {name}" for name in sorted(told))


MEASURES = {
    "comes back more than 0.05 off (half the gap between two shells), own solver": ("strayed", 2),
    "the same, rk4 with 256 steps on the way back": ("strayed_finely", 2),
    "comes back nearer to another of the 1000 test inputs": ("lost", 2),
    "calibration error (15 bins)": ("calibration_error", 3),
    "cross-entropy": ("loss", 3),
    "accuracy with noise of 0.05 on inputs": ("noise_5", 3),
    "accuracy if solved until 1.25": ("longer_125", 3),
}
"""Rows of the page: columns of the table, and digits."""
KINDS = ("constant-euler-2", "constant-euler-4", "constant-euler-8", "random-6-finish-0.2")
FINE = "constant-euler-128"
COLUMNS = (
    "lost", "strayed", "strayed_finely", "noise_1", "noise_2", "noise_5", "attack_05", "attack_10", "attack_20",
    "calibration_error", "loss", "bfloat16", "float64_changes", "batch_changes", "longer_125", "longer_150",
)  # fmt: skip
"""The sixteen measures that Holm's correction is for."""


def _pairs(of: Mapping[str, Sequence[Row]], kind: str, flows: str = FINE) -> list[tuple[Row, Row]]:
    """Of one seed, as far as both are equally accurate."""
    fine = {row["seed"]: row for row in of[flows]}
    both = [(row, fine[row["seed"]]) for row in of[kind]]
    return [(one, other) for one, other in both if abs(float(one["accuracy"]) - float(other["accuracy"])) <= 0.02]


def _holm(pairs: Sequence[tuple[Row, Row]]) -> dict[str, float]:
    """Student's paired test, corrected for the sixteen."""
    apart = {name: [float(one[name]) - float(other[name]) for one, other in pairs] for name in COLUMNS}
    plain = {name: one_sample_p(values) if len(set(values)) > 1 else 1.0 for name, values in apart.items()}
    corrected, worst = dict[str, float](), 0.0
    for place, name in enumerate(sorted(plain, key=lambda name: plain[name])):
        corrected[name] = worst = max(worst, min(1.0, (len(plain) - place) * plain[name]))
    return corrected


@of_page("docs/what-being-tied-costs.md")
def being_tied() -> Iterator[Sentence]:
    of = by_run("what-being-tied-costs")
    pairs = {kind: _pairs(of, kind) for kind in KINDS}
    p = {kind: _holm(pairs[kind]) for kind in KINDS}
    yield "which leaves {}, {}, {} and {} pairs", *(len(pairs[kind]) for kind in KINDS)
    for head, (column, digits) in MEASURES.items():
        means = [f"{fmean(float(one[column]) for one, _ in pairs[kind]):.{digits}f}" for kind in KINDS]
        cells = [f"**{cell}**" if p[kind][column] < 0.05 else cell for kind, cell in zip(KINDS, means, strict=True)]
        fine = sorted({f"{fmean(float(two[column]) for _, two in some):.{digits}f}" for some in pairs.values()})
        cells.insert(3, fine[0] if len(fine) == 1 else f"{fine[0]} to {fine[-1]}")
        yield "| {} |" + " {} |" * len(cells), head, *cells
    back = max(p[kind][name] for kind in KINDS[:3] for name in ("lost", "strayed", "strayed_finely"))
    yield "The way back has p ≤ {:.3f} for all kinds of tied models", back
    small = ("noise_1", "noise_2", "attack_05", "attack_10", "attack_20")
    yield "of each coordinate (p ≥ {:.3f};", min(p[kind][name] for kind in KINDS[:3] for name in small)
    yield "accuracy in bfloat16 (p ≥ {:.2f})", min(p[kind]["bfloat16"] for kind in KINDS[:3])


@of_page("docs/what-being-tied-costs.md")
def being_tied_on_images() -> Iterator[Sentence]:
    of = by_run("what-being-tied-costs-mnist")
    p = {kind: _holm(_pairs(of, kind, "constant-euler-16")) for kind in of if kind != "constant-euler-16"}
    back = ("lost", "strayed", "strayed_finely")
    others = [
        value for kind in ("constant-euler-2", "constant-euler-4") for n, value in p[kind].items() if n not in back
    ]
    yield "thirteen other measures none tells tied models from flows (p ≥ {:.2f})", min(others)
    yield "which five seeds do not tell from the flows' (p = {:.2f})", p["random-2"]["lost"]
    yield "against 0.742, p = {:.3f}) and attacks", p["random-2"]["noise_2"]
    yield "against 0.051, p = {:.3f})", p["random-2"]["attack_20"]


@of_page("docs/adaptation.md")
def smaller_steps() -> Iterator[Sentence]:
    """Means over seeds, of each over its failing checks."""
    for run, of in by_run("smaller-step-sphere2").items():
        pair = "/".join(run.split("-")[1:3])
        seeds = sorted({row["seed"] for row in of})
        moments = {
            moment: [[r for r in of if (r["seed"], r["moment"]) == (seed, moment)] for seed in seeds]
            for moment in dict.fromkeys(row["moment"] for row in of)
        }
        flows = list[list[float]]()
        for moment, each in moments.items():
            own, halved, flow = (
                [100 * fmean(numbers(some, name)) for some in each] for name in ("own", "halved", "flow")
            )
            flows.append(flow)
            yield "| {:.1f} | {:.1f} | {:.1f} |", fmean(own), fmean(halved), fmean(flow)
            if moment == "check":
                yield "{}, at the check | {:.1f} | {:.1f} | {:.1f} |", pair, fmean(own), fmean(halved), fmean(flow)
        gains = [one - other for one, other in zip(flows[1], flows[2], strict=True)]
        yield ("({:.1f} to {:.1f}; p =" if pair == "euler/rk4" else "(seeds {:.1f} to {:.1f};"), min(gains), max(gains)


@of_page("docs/recipes.md")
def laws_across_methods() -> Iterator[Sentence]:
    of = by_run("recipes", "recipe")
    flows = [row for row in of["constant-rk4-4"] if row["outcome"] == "FLOW"]
    tied = fmean(numbers(of["constant-euler-32"], "step_bound"))
    yield "flows of 4 steps have h L = {:.1f} in the mean, and Euler's are tied at {:.1f}", _mean_bound(flows), tied


def _mean_bound(of: Sequence[Row]) -> float:
    return fmean(numbers(of, "step_bound"))
