"""Sentences about models trained with constant steps and tolerances: docs/results.md and README.md."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import log2
from statistics import fmean, stdev

from benchmarks.recompute import (
    Row,
    Sentence,
    benchmark,
    log_mean,
    numbers,
    of_page,
    one_sample_p,
    rows,
    spread,
    welch_p,
    words_of_p,
)

PAGE = "docs/results.md"
STEPS = {
    "sphere2-fixed": "Sphere2",
    "sphere3-fixed": "Sphere3",
    "sphere10-fixed": "Sphere10",
    "sphere900-fixed": "Sphere900",
}
LEAST = 0.8


def grid(study: str, method: str) -> dict[int, list[Row]]:
    """The rows of models that trained, by numbers of steps."""
    of = [row for row in rows(study) if row["method"] == method]
    trained = {(row["run"], row["seed"]) for row in of if row["own"] == "true" and float(row["accuracy"] or 0) >= LEAST}
    kept = [row for row in of if (row["run"], row["seed"]) in trained]
    return {n: [r for r in kept if int(r["steps"]) == n] for n in sorted({int(row["steps"]) for row in kept})}


def own(entry: Sequence[Row]) -> list[float]:
    return numbers((row for row in entry if row["own"] == "true"), "accuracy")


def drops(entry: Sequence[Row]) -> list[float]:
    """Under rk4 at half the step."""
    half = [row for row in entry if (row["test_method"], row["factor"]) == ("rk4", "0.5")]
    return [a - b for a, b in zip(own(entry), numbers(half, "accuracy"), strict=True)]


def steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


@of_page(PAGE)
def drops_of_spheres() -> Iterator[Sentence]:
    for study, name in STEPS.items():
        for method in ("euler", "rk4"):
            entries = grid(study, method)
            lost = {count: drops(entry) for count, entry in entries.items()}
            *coarse, finest = entries
            worst = max(coarse, key=lambda count: fmean(lost[count]))
            failing = [count for count in entries if fmean(map(abs, lost[count])) > 0.1]
            passes = min(count for count in entries if count > max(failing))
            yield (
                f"{name} trained with {method}: trained coarsely, accuracy drops by more than 0.1 under a finer "
                "solver; trained finely, it does not | under rk4 at 0.5 times the training step, the largest drop is "
                "{} at {}; at {} it is {}; critical steps: {}-{};",
                spread(lost[worst]),
                steps(worst),
                steps(finest),
                spread(lost[finest]),
                max(failing),
                passes,
            )


@of_page(PAGE)
def trends_of_spheres() -> Iterator[Sentence]:
    for study, name in STEPS.items():
        for method in ("euler", "rk4"):
            entries = grid(study, method)
            means = {count: fmean(own(entry)) for count, entry in entries.items()}
            low, high = min(means, key=lambda n: means[n]), max(means, key=lambda n: means[n])
            over = [over_grid(entries, seed) for seed in seeds(entries)]
            changes = [change for change in over if change is not None]
            yield (
                f"{name} trained with {method}: tested with the training solver, accuracy shows no clear dependence on "
                "the step or tolerance | from {} at {} to {} at {}; along the line through each seed's entries, from "
                "coarse to fine it changes by {} ({} seeds, {})",
                spread(own(entries[low])),
                steps(low),
                spread(own(entries[high])),
                steps(high),
                spread(changes),
                len(changes),
                words_of_p(one_sample_p(changes)),
            )


@of_page(PAGE)
def the_phenomenon() -> Iterator[Sentence]:
    """The most that is lost on spheres by a number of steps, and by the finest, in points."""
    lost = [
        [fmean(drops(entry)) for entry in grid(study, method).values()]
        for study in STEPS
        for method in ("euler", "rk4")
    ]
    most, least = max(max(means[:-1]) for means in lost), max(means[-1] for means in lost)
    yield "lose up to {:.0f} points of accuracy under a finer solver in the mean,", 100 * most
    yield "those trained finely {:.1f} at most", 100 * least


@of_page(PAGE)
def fresh_seeds_of_sphere3() -> Iterator[Sentence]:
    entries = grid("sphere3-fixed", "euler")
    over = {seed: over_grid(entries, seed) for seed in seeds(entries)}
    every = [change for change in over.values() if change is not None]
    fresh = [change for seed, change in over.items() if change is not None and int(seed) > 4]
    told = ((spread(some), words_of_p(one_sample_p(some))) for some in (fresh, every))
    yield "They have {} ({}), and all fifteen {} ({},", *(word for pair in told for word in pair)


def seeds(entries: dict[int, list[Row]]) -> list[str]:
    return sorted({row["seed"] for entry in entries.values() for row in entry})


def over_grid(entries: dict[int, list[Row]], seed: str) -> float | None:
    """How much the line through one seed's accuracies changes over the grid, if it trained in half of it."""
    points = [
        (log2(count), float(row["accuracy"]))
        for count, entry in entries.items()
        for row in entry
        if row["seed"] == seed and row["own"] == "true"
    ]
    if len(points) < max(3, len(entries) / 2):
        return None
    x = [place for place, _ in points]
    middle = fmean(x)
    slope = sum((a - middle) * b for a, b in points) / sum((a - middle) ** 2 for a in x)
    return slope * (log2(max(entries)) - log2(min(entries)))


@of_page(PAGE)
def training_batches() -> Iterator[Sentence]:
    of = [row for row in rows("critical-steps") if row["run"].startswith("sphere2-euler")]
    gaps = {n: numbers((r for r in of if int(r["steps"]) == n), "batch_gap") for n in (64, 128)}
    yield (
        "mean gaps: 64 steps {:.3f} ± {:.3f} (other than 0.1: {}); 128 steps {:.3f} ± {:.3f} (other than 0.1: {})",
        *(
            value
            for n in (64, 128)
            for value in (fmean(gaps[n]), stdev(gaps[n]), words_of_p(one_sample_p(gaps[n], 0.1)))
        ),
    )
    at_64 = [row for row in of if row["steps"] == "64"]
    tests = [abs(a - b) for a, b in zip(numbers(at_64, "own"), numbers(at_64, "checked"), strict=True)]
    yield "the mean gap with 64 steps, {:.3f}, differs from the threshold", fmean(gaps[64])
    yield "On the test set the same models have {:.4f}, and pass", fmean(tests)
    fresh = [float(row["batch_gap"]) for row in at_64 if int(row["seed"]) > 4]
    yield "the fresh {} alone have {:.3f})", len(fresh), fmean(fresh)
    for found in (gaps[64], tests):
        groups = [fmean(group) for group in combinations(found, 5)]
        yield (
            "{:.0f}% of all groups of 5 of these seeds fail with 64 steps",
            100 * fmean(mean > 0.1 + 1e-9 for mean in groups),
        )
    means = {n: fmean(numbers((r for r in of if int(r["steps"]) == n), "batch_gap")) for n in (64, 128)}
    yield (
        "The critical number is {:.0f} steps by interpolation",
        64 * 2 ** ((means[64] - 0.1) / (means[64] - means[128])),
    )


@of_page(PAGE)
def training_batches_of_images() -> Iterator[Sentence]:
    runs = {n: [row for row in rows("critical-steps") if row["run"] == f"cifar10-euler-{n}-lr1e-3"] for n in (16, 32)}
    coarse, fine = (numbers(runs[n], "batch_gap") for n in runs)
    yield (
        "16 Euler steps fail with a mean gap of {:.3f} (both seeds; {:.1f}% and {:.1f}% of {} batches fail) and 32 "
        "pass with {:.3f}",
        *(fmean(coarse), *(100 * x for x in numbers(runs[16], "batch_fails"))),
        *(runs[16][0]["batches"], fmean(fine)),
    )
    tests = [float(row["own"]) - float(row["checked"]) for n in runs for row in runs[n]]
    yield ("On the test set the same four models have {:.3f}, {:.3f}, {:.3f} and {:.3f}", *tests)
    known = [row for row in rows("cifar10-fixed") if row["run"] == "euler-32-lr1e-3" and row["own"] == "true"]
    seeds = {row["seed"] for row in known}
    every = numbers(known, "accuracy") + numbers((row for row in runs[32] if row["seed"] not in seeds), "own")
    yield (
        "With 32 steps, the coarsest run that passes on batches, the four seeds that exist score {:.1f} ± {:.1f} %",
        100 * fmean(every),
        100 * stdev(every),
    )


@of_page(PAGE)
def fields() -> Iterator[Sentence]:
    slopes = {
        n: numbers((r for r in rows("critical-steps", "fields") if r["run"] == f"sphere2-euler-{n}"), "slope")
        for n in (16, 32, 64, 128, 256)
    }
    listed = "; ".join(f"{n} steps {{:.2f}} to {{:.2f}}" for n in slopes)
    yield f"by seed: {listed}.", *(end(own) / n for n, own in slopes.items() for end in (min, max))
    said = {(row["run"], row["seed"]): row["outcome"] for row in rows("critical-steps", "audits")}
    below = [
        said[row["run"], row["seed"]]
        for row in rows("critical-steps", "fields")
        if "euler" in row["run"] and float(row["slope"]) < int(row["run"].rsplit("-", 1)[1])
    ]
    yield (
        "Of the {} models with h L < 1 the audits say {} FLOW, {} TIED",
        len(below),
        below.count("FLOW"),
        below.count("TIED"),
    )
    for method in ("fehlberg21", "dopri54"):
        ratios = [row for row in rows("critical-steps", "estimates") if method in row["run"]]
        by = [[r for r in ratios if said[r["run"], r["seed"]] == kind] for kind in ("TIED", "FLOW")]
        yield (
            "true local errors are larger than estimated: {:.1f} times ({} TIED models), {:.1f} times ({} FLOW models)",
            *(value for kind in by for value in (log_mean(numbers(kind, "underestimated")), len(kind))),
        )


@of_page("README.md")
def five_seeds_of_figure_1() -> Iterator[Sentence]:
    of = [row for row in rows("trajectories") if row["run"] == "coarse"]
    right = fmean(numbers((row for row in of if row["own"] == "true"), "accuracy"))
    finer = {int(row["test_steps"]) for row in of if int(row["test_steps"]) > 2}
    lowest = min(fmean(numbers((r for r in of if int(r["test_steps"]) == n), "accuracy")) for n in finer)
    yield "more steps cost models trained with 2 steps up to {:.1f} points.", 100 * (right - lowest)


@of_page(PAGE)
def torchdiffeqs_methods() -> Iterator[Sentence]:
    found = benchmark("torchdiffeq_methods")["runs"]
    p = []
    for count in (1, 2, 4, 8):
        ours, theirs = own(grid("sphere2-fixed", "rk4")[count]), found[f"rk4_38 {count}"]["own"]
        p.append(welch_p((fmean(ours), stdev(ours), 5), (fmean(theirs), stdev(theirs), 5)))
    lost = [
        fmean(a - b for a, b in zip(r["own"], r["flow"], strict=True))
        for r in (found[f"rk4_38 {n}"] for n in (1, 2, 4, 8))
    ]
    yield (
        "accuracy with the training solver is that of the classical rk4 (Welch p = {:.2f} to {:.2f}, against its "
        "fourteen or fifteen seeds), and one and two "
        "steps lose {:.2f} and {:.2f} under the flow, four and eight {:.2f} and {:.2f}",
        min(p),
        max(p),
        *lost,
    )


@of_page(PAGE)
def torchdiffeqs_fehlberg2() -> Iterator[Sentence]:
    found, accuracy, lost = benchmark("torchdiffeq_methods")["runs"], list[float](), list[float]()
    means = list[float]()
    for tolerance, name in (("0.1", "1e-1"), ("0.01", "1e-2"), ("0.001", "1e-3")):
        run = found[f"fehlberg2 {tolerance}"]
        ours = [row for row in rows("critical-steps", "audits") if row["run"] == f"sphere2-fehlberg21-{name}"]
        theirs_lost = [a - b for a, b in zip(run["own"], run["flow"], strict=True)]
        ours_lost = [float(row["own"]) - float(row["flow"]) for row in ours]
        accuracy.append(_welch(run["own"], numbers(ours, "own")))
        lost.append(_welch(theirs_lost, ours_lost))
        means.append(fmean(theirs_lost))
    yield (
        "accuracy with the training solver is that of our fehlberg21 (Welch p = {:.2f} to {:.2f}), and so is what the "
        "flow takes away ({:.2f}, {:.2f} and {:.2f}; p = {:.2f} to {:.2f})",
        min(accuracy),
        max(accuracy),
        *means,
        min(lost),
        max(lost),
    )


@of_page(PAGE)
def torchdiffeqs_fehlberg2_at_a_small_tolerance() -> Iterator[Sentence]:
    run = benchmark("torchdiffeq_methods")["runs"]["fehlberg2 0.0001"]
    ours = [row for row in rows("critical-steps", "audits") if row["run"] == "sphere2-fehlberg21-1e-4"]
    yield (
        "At 1e-4 accuracy is {:.3f} (ours {:.3f}, p = {:.2f}), and the flow takes {:.3f} away",
        fmean(run["own"]),
        fmean(numbers(ours, "own")),
        _welch(run["own"], numbers(ours, "own")),
        fmean(a - b for a, b in zip(run["own"], run["flow"], strict=True)),
    )


def _welch(one: Sequence[float], other: Sequence[float]) -> float:
    return welch_p((fmean(one), stdev(one), len(one)), (fmean(other), stdev(other), len(other)))


@of_page(PAGE)
def torchdiffeqs_old_dopri5() -> Iterator[Sentence]:
    runs = benchmark("torchdiffeq_dopri5")["runs"]
    ends = {name: [run[who]["own"] for who in ("theirs", "ours")] for name, run in runs.items()}
    for words, name in (
        ("at 1e-6 theirs ends at {} and ours at {} (Welch {})", "1e-06"),
        ("at {} and {} ({};", "fresh"),
    ):
        theirs, ours = ends[name]
        yield words, spread(theirs), spread(ours), words_of_p(_welch(theirs, ours))
    every = [[*one, *other] for one, other in zip(ends["1e-06"], ends["fresh"], strict=True)]
    yield "all ten: {})", words_of_p(_welch(*every))
    others = [_welch(*ends[name]) for name in ("0.01", "0.001", "0.0001", "1e-05")]
    yield "From 1e-2 to 1e-5 no difference shows (p = {:.2f} to {:.2f})", min(others), max(others)
    lost = [a - b for name in ("1e-06", "fresh") for a, b in zip(*runs[name]["theirs"].values(), strict=True)]
    yield "The flow takes {} away at 1e-6", "nothing" if max(map(abs, lost)) < 0.0005 else max(lost)
    still, ours = ends["constant"]
    yield "theirs with steps that are constants to it ends at {} at 1e-6", spread(still)
    told = (words_of_p(_welch(still, ends["1e-06"][0])), words_of_p(_welch(still, ours)))
    yield "({} seeds; {} against theirs as it was, {} against ours)", "five" if len(still) == 5 else len(still), *told
    shares = [share for name in ("1e-06", "fresh") for share in runs[name]["through_steps"]]
    yield "is {:.2f} to {:,.0f} times the rest", min(shares), round(max(shares), -3)
