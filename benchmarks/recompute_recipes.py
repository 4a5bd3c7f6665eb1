"""Sentences of docs/recipes.md: who is a flow, at what cost, and which number tells."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import comb
from statistics import fmean

from benchmarks.recompute import Row, Sentence, numbers, of_page, rows, words_of_p
from benchmarks.recompute import one_sample_p as paired_p

TREATED = "random-6-finish-0.2"


def recipe(name: str) -> list[Row]:
    return [row for row in rows("recipes") if row["run"] == name]


def above(of: Sequence[Row], accuracy: float = 0.9) -> int:
    return sum(value > accuracy for value in numbers(of, "flow_accuracy"))


@of_page("docs/adaptation.md")
def either_part() -> Iterator[Sentence]:
    """Drawn steps and a finish, each by itself, and thirty seeds of the steady controller."""
    alone = [recipe(name) for name in ("random-6", "coarse-6-finish-0.2")]
    if all(row["outcome"] == "FLOW" for of in alone for row in of) and {*map(len, alone)} == {10}:
        yield ("Either part made flows of ten seeds there by itself",)
    steady = recipe("steady-midpoint")
    gaps = [own - flow for own, flow in zip(numbers(steady, "accuracy"), numbers(steady, "flow_accuracy"), strict=True)]
    if len(steady) == 30 and all(row["outcome"] == "FLOW" for row in steady):
        told = (fmean(numbers(steady, "cost")), 100 * max(map(abs, gaps)))
        yield "cost {:.1f} with midpoint, all are FLOW, and the worst gap is {:.1f} points", *told


@of_page("docs/recipes.md")
def random_steps() -> Iterator[Sentence]:
    treated, steady = recipe(TREATED), recipe("steady-midpoint")
    flows = sum(row["outcome"] == "FLOW" for row in treated)
    yield (
        "cost {:.1f} evaluations per iteration: {} of {} seeds are FLOW",
        fmean(numbers(treated, "cost")),
        flows,
        len(treated),
    )
    yield "{} of them above 0.9 under the flow", above(treated)
    ours, theirs = ({row["seed"]: float(row["flow_accuracy"]) for row in of} for of in (treated, steady))
    p = paired_p([ours[seed] - theirs[seed] for seed in ours])
    yield (
        "which costs {:.1f}: over the same {} seeds {:.3f} against {:.3f} under the flow ({}, paired t-test)",
        fmean(numbers(steady, "cost")),
        len(ours),
        fmean(ours.values()),
        fmean(theirs.values()),
        words_of_p(p),
    )
    fresh = [seed for seed in ours if int(seed) >= 10]
    yield (
        "over the {} seeds that had no part in choosing it {:.3f} against {:.3f} ({})",
        len(fresh),
        fmean(ours[seed] for seed in fresh),
        fmean(theirs[seed] for seed in fresh),
        words_of_p(paired_p([ours[seed] - theirs[seed] for seed in fresh])),
    )


@of_page("docs/recipes.md")
def shares_of_flows() -> Iterator[Sentence]:
    """Eight recipes beside constant midpoint steps, by Fisher's exact test and corrected by Holm."""
    pairs = [(f"treated-{name}", 4) for name in ("ends-0.25", "ends-0.5", "methods", "spectral-2.5", "spectral-3")]
    pairs += [("treated-penalties-0.01", 4), ("random-4", 4), ("random-6", 8)]
    found = {name: fisher_p(*(_flows(of) for of in (name, f"constant-midpoint-{steps}"))) for name, steps in pairs}
    worst, corrected = 0.0, dict[str, float]()
    for rank, name in enumerate(sorted(found, key=found.__getitem__)):
        corrected[name] = worst = max(worst, min(1.0, (len(found) - rank) * found[name]))
    drawn, ends = "random-4", "treated-ends-0.5"
    yield "(Fisher's exact test, p = {:.3f})", found[drawn]
    yield "with 0.5 to 1.5 against none (p = {:.3f})", found[ends]
    yield "{:.3f} is {:.3f}, {:.3f} below is {:.2f}", found[drawn], corrected[drawn], found[ends], corrected[ends]
    if all(corrected[name] < 0.01 for name in found if found[name] < 0.01):
        yield ("the others stay under 0.01.)",)


def _flows(name: str) -> int:
    """Of ten seeds."""
    return sum(row["outcome"] == "FLOW" for row in recipe(name) if int(row["seed"]) < 10)


def fisher_p(one: int, other: int, of: int = 10) -> float:
    """Fisher's exact test of two shares of as many, two-sided."""
    ways = [comb(of, k) * comb(of, one + other - k) for k in range(of + 1) if 0 <= one + other - k <= of]
    here = comb(of, one) * comb(of, other)
    return sum(way for way in ways if way <= here) / sum(ways)


@of_page("docs/recipes.md")
def one_law() -> Iterator[Sentence]:
    """Thresholds that tell Sphere2's Euler models best, on those of the other two."""
    home = [row for row in rows("recipes") if row["recipe"].startswith("constant-euler") and _is_told(row)]
    away = [[r for r in rows("one-law") if r["data"] == data and _is_told(r)] for data in ("sphere3", "sphere10")]
    right = dict[str, list[int]]()
    for law in ("leading_term", "step_bound", "safe_share"):
        limit = _best_limit([(_law(row, law), row["outcome"] == "TIED") for row in home])
        right[law] = [sum((_law(row, law) > limit) == (row["outcome"] == "TIED") for row in some) for some in away]
    (a, b), (c, d) = right["leading_term"], right["safe_share"]
    yield "the leading error term on {} of {} and {} of {} models", a, len(away[0]), b, len(away[1])
    if right["step_bound"] == right["leading_term"]:
        yield "h L on as many, margins on {} and {}.", c, d
    pooled = [row for row in rows("recipes") if row["recipe"].startswith("constant") and _is_told(row)]
    pooled += [row for some in away for row in some]
    areas = [_area(pooled, law) for law in ("leading_term", "step_bound", "safe_share")]
    yield "Over all {} models", len(pooled)
    yield "the areas are {:.2f} (0.95 to 0.99), {:.2f} (0.73 to 0.82) and {:.2f} (0.93 to 0.98).", *areas


def _is_told(row: Row) -> bool:
    return row["outcome"] in ("FLOW", "TIED") and float(row["accuracy"]) >= 0.8


def _law(row: Row, law: str) -> float:
    return 1 - float(row[law]) if law == "safe_share" else float(row[law])


def _best_limit(pairs: Sequence[tuple[float, bool]]) -> float:
    """Between two neighbours, where the shares of those told rightly, added over both kinds, are largest."""
    tied, flows = ([value for value, is_tied in pairs if is_tied is kind] for kind in (True, False))
    places = sorted({value for value, _ in pairs})
    middles = [(low + high) / 2 for low, high in pairwise(places)]
    return max(middles, key=lambda at: sum(v > at for v in tied) / len(tied) + sum(v <= at for v in flows) / len(flows))


def _area(of: Sequence[Row], law: str) -> float:
    tied, flows = ([_law(row, law) for row in of if row["outcome"] == kind] for kind in ("TIED", "FLOW"))
    return fmean((high > low) + (high == low) / 2 for high in tied for low in flows)


@of_page("docs/recipes.md")
def recipes_on_images() -> Iterator[Sentence]:
    every = dict[str, list[Row]]()
    for row in rows("recipes-mnist"):
        every.setdefault(row["recipe"], []).append(row)
    for name, of in every.items():
        told = Counter(row["outcome"] for row in of)
        flows, seeds = numbers(of, "flow_accuracy"), len(of)
        counts = (told["FLOW"], seeds, told["TIED"], told["UNDECIDED"])
        means = (fmean(numbers(of, "accuracy")), fmean(flows), min(flows))
        cost = fmean(numbers(of, "cost"))
        yield "| `{}` | {:.1f} | {} of {} | {} | {} | {:.3f} | {:.3f} | {:.3f} |", name, cost, *counts, *means
    lost = {name: [a - b for a, b in _both(of)] for name, of in every.items()}
    drawn, constant = lost["random-2"], lost["constant-midpoint-2"]
    yield "5 of 5 are FLOW, and they lose {:.3f} under the flow", fmean(drawn)
    p = paired_p([a - b for a, b in zip(drawn, constant, strict=True)])
    yield "and lose {:.3f} ({}, paired t-test)", fmean(constant), words_of_p(p)
    p = paired_p([a - b for a, b in zip(drawn, lost["constant-rk4-1"], strict=True)])
    loses = fmean(lost["constant-rk4-1"])
    yield "with nothing drawn, and loses {:.3f}, which five seeds do not tell from that ({})", loses, words_of_p(p)
    yield "without it lose {:.3f} for {:.1f}", fmean(lost["random-3"]), fmean(numbers(every["random-3"], "cost"))
    adapted = (fmean(lost[f"algorithm-2-{method}"]) for method in ("midpoint", "euler"))
    yield "its models lose {:.3f} (midpoint) and {:.3f} (Euler)", *adapted


def _both(of: Sequence[Row]) -> list[tuple[float, float]]:
    return list(zip(numbers(of, "accuracy"), numbers(of, "flow_accuracy"), strict=True))


@of_page("docs/recipes.md")
def laws_on_images() -> Iterator[Sentence]:
    """Thresholds of Sphere2's Euler models there, and those of its own."""
    home = [row for row in rows("recipes") if row["recipe"].startswith("constant-euler") and _is_told(row)]
    here = [row for row in rows("recipes-mnist") if row["recipe"].startswith("constant") and _is_told(row)]
    limits = [
        [
            _best_limit([(_law(row, law), row["outcome"] == "TIED") for row in of])
            for law in ("step_bound", "leading_term")
        ]
        for of in (home, [row for row in here if row["method"] == "euler"])
    ]
    yield "the thresholds of Sphere2's Euler models, {:.2f} and {:.2g}", *limits[0]
    if all(_law(row, "leading_term") > limits[0][1] and _law(row, "step_bound") > limits[0][0] for row in here):
        tied = sum(row["outcome"] == "TIED" for row in here)
        yield "would call all {} models of constant steps tied, and {} are", len(here), tied
    yield "Here models turn at {:.1f} and {:.2f}", *limits[1]
