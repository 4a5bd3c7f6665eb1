"""Sentences about adapted runs: docs/results.md, docs/adaptation.md and README.md."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2
from statistics import fmean, pstdev, stdev
from typing import Any

from benchmarks.recompute import (
    Row,
    Sentence,
    benchmark,
    numbers,
    of_page,
    one_sample_p,
    rows,
    variance_p,
    welch_p,
    words_of_p,
)

PAGE = "docs/results.md"
STEPS, TOLERANCES = "step-adaptation-sphere2", "tolerance-adaptation-sphere2"
OUTCOMES = ("FLOW", "TIED", "COARSE", "MOVED", "UNDECIDED")


def of_run(study: str, run: str, table: str = "table") -> list[Row]:
    return [row for row in rows(study, table) if row["run"] == run]


def own(study: str, run: str) -> list[Row]:
    return [row for row in of_run(study, run) if row["own"] == "true"]


def audits(of: Sequence[Row]) -> str:
    counts = Counter(row["outcome"] for row in of)
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])


def swings(study: str, run: str) -> list[float]:
    """By seed, of log2 of the steps in the second half, from the first correction on."""
    found = []
    for seed in sorted({row["seed"] for row in of_run(study, run, "curves")}):
        curve = [row for row in of_run(study, run, "curves") if row["seed"] == seed and row["steps"]]
        first = next(int(r["iteration"]) for r in curve if r["steps_after"] and int(r["steps_after"]) > int(r["steps"]))
        begin = max(5000, first)
        found.append(pstdev(log2(int(row["steps"])) for row in curve if int(row["iteration"]) > begin))
    return found


@of_page(PAGE)
def against_table_1() -> Iterator[Sentence]:
    of = own(STEPS, "sphere2-euler-midpoint-paper-0.1")
    accuracy, cost = numbers(of, "accuracy"), numbers(of, "cost")
    p = welch_p((fmean(accuracy), stdev(accuracy), len(accuracy)), (0.989, 0.006, 5))
    yield (
        "{:.1f} ± {:.1f} % ({} seeds) where 98.9 ± 0.6 % is printed (Welch {}",
        100 * fmean(accuracy),
        100 * stdev(accuracy),
        len(accuracy),
        words_of_p(p),
    )
    yield (
        "{:.1f}, seeds {:.1f} to {:.1f}, where 100.5 is printed (t-test {}",
        fmean(cost),
        min(cost),
        max(cost),
        words_of_p(one_sample_p([log2(c) for c in cost], log2(100.5))),
    )
    images = own("step-adaptation-cifar10", "cifar10-euler-midpoint-paper-0.1")
    accuracy, cost = numbers(images, "accuracy"), numbers(images, "cost")
    yield "{:.1f} ± {:.1f} % (3 seeds) where 55.0 ± 0.8 % is printed", 100 * fmean(accuracy), 100 * stdev(accuracy)
    yield "{:.1f}, seeds {:.1f} to {:.1f}, where 21.9 is printed", fmean(cost), min(cost), max(cost)
    yield "costs less than that: {:.1f} evaluations (seeds {:.1f} to {:.1f})", fmean(cost), min(cost), max(cost)


@of_page(PAGE)
def every_audit() -> Iterator[Sentence]:
    for study in (STEPS, TOLERANCES):
        for run in dict.fromkeys(row["run"] for row in rows(study, "audits")):
            of = of_run(study, run, "audits")
            if "-paper-" in run:
                by_seed = ", ".join(f"{row['seed']} {row['outcome']}" for row in of)
                yield (
                    f"audits: {audits(of)} (share of FLOW {{:.2f}} to {{:.2f}}; seeds {by_seed}); at the end",
                    *wilson(of),
                )
    every = [row for row in rows(STEPS, "audits") if "-paper-" in row["run"]]
    count = Counter(row["outcome"] for row in every)
    yield (
        "of {} audited ones {} are FLOW, {} UNDECIDED, {} TIED",
        len(every),
        count["FLOW"],
        count["UNDECIDED"],
        count["TIED"],
    )


def wilson(of: Sequence[Row]) -> tuple[float, float]:
    """Wilson's 95% interval of the share of FLOW."""
    n, share, z = len(of), fmean(row["outcome"] == "FLOW" for row in of), 1.96
    middle, half = share + z * z / (2 * n), z * (share * (1 - share) / n + (z / (2 * n)) ** 2) ** 0.5
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


@of_page(PAGE)
def swings_of_steps() -> Iterator[Sentence]:
    for pair in ("euler/midpoint", "euler/rk4", "midpoint/rk4"):
        of = swings(STEPS, f"sphere2-{pair.replace('/', '-')}-paper-0.1")
        yield (
            f"Sphere2, {pair}, Algorithm 2, threshold 0.1, learning rate 1e-4: the number of steps fluctuates to the "
            "end | once settled, its log2 has a standard deviation of {:.2f} (seeds {:.2f} to {:.2f};",
            fmean(of),
            min(of),
            max(of),
        )


@of_page(PAGE)
def the_opening() -> Iterator[Sentence]:
    of = own(STEPS, "sphere2-euler-midpoint-paper-0.1")
    cost = numbers(of, "cost")
    yield (
        "cheaper than printed ({:.1f} against 100.5 evaluations; ten seeds), why is not known, and not surely more "
        "accurate ({:.1f} against 98.9 %)",
        fmean(cost),
        100 * fmean(numbers(of, "accuracy")),
    )
    yield "Seeds differ in cost by a factor of {:.1f}.", max(cost) / min(cost)
    first, fresh = (
        numbers((row for row in of if (int(row["seed"]) < 5) is early), "accuracy") for early in (True, False)
    )
    printed = [welch_p((fmean(some), stdev(some), 5), (0.989, 0.006, 5)) for some in (first, fresh)]
    yield (
        "as five seeds said ({:.1f} %, p = {:.3f}), the fresh ones do not bear out ({:.1f} %, p = {:.2f})",
        *(100 * fmean(first), printed[0], 100 * fmean(fresh), printed[1]),
    )


@of_page(PAGE)
def reviews_of_images() -> Iterator[Sentence]:
    """The reviews of Algorithm 2 on CIFAR-10 at the printed rate, in the second half of training."""
    late = [
        (int(row["steps"]), abs(float(row["trained"]) - float(row["checked"])))
        for row in of_run("step-adaptation-cifar10", "cifar10-euler-midpoint-paper-0.1", "curves")
        if row["trained"] and row["checked"] and int(row["iteration"]) > 3900
    ]
    few, many = ([gap for count, gap in late if low <= count <= high] for low, high in ((12, 22), (23, 45)))
    yield (
        "with 12 to 22 steps the mean gap is {:.3f} and {:.0%} of {} batches fail the check; with 23 to 45 steps it is "
        "{:.3f} and {:.0%} of {}",
        *(v for gaps in (few, many) for v in (fmean(gaps), fmean(gap > 0.1 for gap in gaps), len(gaps))),
    )


@of_page("docs/adaptation.md")
def ten_seeds_of_algorithm_2() -> Iterator[Sentence]:
    of = own(STEPS, "sphere2-euler-midpoint-paper-0.1")
    accuracy = numbers(of, "accuracy")
    cost = fmean(numbers(of, "cost"))
    yield "bring this to {:.1f} ± {:.1f} % at {:.1f}.", 100 * fmean(accuracy), 100 * stdev(accuracy), cost


@of_page("README.md")
def the_table_of_readme() -> Iterator[Sentence]:
    """Its runs are those of the studies, to the last digit."""
    every = [row for row in rows("critical-steps", "audits") if row["run"] == "sphere2-euler-64"]
    fine = [row for row in every if int(row["seed"]) < 5]
    of_all = Counter(row["outcome"] for row in every)
    told = (len(every), of_all["FLOW"], of_all["TIED"], of_all["UNDECIDED"])
    yield "of {} with 64 Euler steps {} are FLOW, {} TIED, {} UNDECIDED", *told
    steady = of_run(STEPS, "sphere2-midpoint-rk4-steady-0.01", "audits")
    for head, of in ((("64 Euler steps", "64"), fine), (("midpoint, adapted", f"{fmean(_costs(steady)):.1f}"), steady)):
        cells = (f"{_bold(row['outcome'])}, {{:.3f}} → {{:.3f}}" for row in of)
        pairs = [float(row[column]) for row in of for column in ("own", "flow")]
        yield f"| {' | '.join((*head, *cells))} |", *pairs


@of_page("README.md")
def constant_midpoint_steps() -> Iterator[Sentence]:
    runs = (benchmark("frontier")["runs"][f"sphere2 midpoint/rk4 constant {steps}"] for steps in (32, 16))
    (fine, cost), (coarse, half) = ((Counter(run["outcome"])["FLOW"], fmean(run["evaluations"])) for run in runs)
    yield "32 midpoint steps ({:.0f} evaluations) {} of 5 seeds are FLOW, with 16 ({:.0f} evaluations) {} of 5.", *(
        cost, fine, half, coarse
    )  # fmt: skip


def _costs(of: Sequence[Row]) -> list[float]:
    return numbers(own(STEPS, of[0]["run"]), "cost")


def _bold(outcome: str) -> str:
    return f"**{outcome}**" if outcome == "TIED" else outcome


@of_page("docs/adaptation.md")
def the_frontier() -> Iterator[Sentence]:
    """Its table, row by row."""
    for name, run in benchmark("frontier")["runs"].items():
        gaps = [abs(a - b) for a, b in zip(run["own"], run["flow"], strict=True)]
        counts = Counter(run["outcome"]).most_common()
        adapted = " constant " not in name
        yield (
            f"| {name} | {{:.1f}} | {{}} | {{:.3f}} ± {{:.3f}} | {{:.3f}} ± {{:.3f}} | {{:.3f}} | {{}} | {{}} |",
            fmean(run["evaluations"]),
            f"{fmean(run['checks_share']):.1%}" if adapted else "",
            fmean(run["own"]),
            stdev(run["own"]),
            fmean(run["flow"]),
            stdev(run["flow"]),
            max(gaps),
            f"{fmean(run['std_log2']):.2f}" if adapted else "",
            ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in counts),
        )


def _mean(name: str, column: str) -> float:
    return fmean(benchmark("frontier")["runs"][f"sphere2 {name}"][column])


def _gap(name: str) -> float:
    """The worst, in points."""
    run = benchmark("frontier")["runs"][f"sphere2 {name}"]
    return 100 * max(abs(a - b) for a, b in zip(run["own"], run["flow"], strict=True))


def _apart(one: str, other: str, column: str = "flow") -> float:
    """The p-value for accuracies under the flow, or another column, seed by seed."""
    runs = (benchmark("frontier")["runs"][f"sphere2 {name}"][column] for name in (one, other))
    return one_sample_p([a - b for a, b in zip(*runs, strict=True)])


@of_page("docs/adaptation.md")
def what_was_found() -> Iterator[Sentence]:
    euler, cheap, default = "euler/midpoint paper 0.1", "euler/midpoint steady 0.075", "euler/midpoint steady 0.01"
    own = benchmark("frontier")["runs"][f"sphere2 {euler}"]["own"]
    yield "it reaches {:.1f} ± {:.1f} %", 100 * fmean(own), 100 * stdev(own)
    yield "at {:.1f} evaluations. The paper has", _mean(euler, "evaluations")
    costs = [_mean(f"euler/midpoint paper {d}", "evaluations") for d in (0.2, 0.1, 0.05)]
    yield "At 0.2 Algorithm 2 costs {:.1f} evaluations, and no seed is FLOW", costs[0]
    yield "at 0.1 four are, at {:.1f}; at 0.05 all five, at {:.1f}", *costs[1:]
    midpoint = [_mean(f"midpoint/rk4 paper {d}", "evaluations") for d in (0.2, 0.1, 0.05)]
    yield "2, 3 and 4 of 5 FLOW, at {:.1f}, {:.1f} and {:.1f}", *midpoint
    yield "(target 0.075, {:.1f} evaluations)", _mean(cheap, "evaluations")
    swings = (_mean(cheap, "std_log2"), _mean(euler, "std_log2"), words_of_p(_apart(cheap, euler, "std_log2")))
    yield "its swing is {:.2f}, not {:.2f} ({})", *swings
    yield "the worst gap is {:.1f} points, not {:.1f}", _gap(cheap), _gap(euler)
    flows = (_mean(cheap, "flow"), _mean(euler, "flow"), _apart(cheap, euler))
    yield "five seeds do not tell: {:.3f} and {:.3f} (p = {:.2f};", *flows
    yield "the worst gap is {:.1f} points and all five", _gap(default)
    yield "midpoint/rk4 costs {:.1f} evaluations", _mean("midpoint/rk4 steady 0.01", "evaluations")
    adaptive = ("dopri54/dopri54 steady 0.01", "dopri54/dopri54 paper 0.1")
    ends = [value for name in adaptive for value in (_mean(name, "evaluations"), _mean(name, "flow"))]
    yield (
        "steady ({:.1f} evaluations, default target) ends at {:.3f} under the flow, Algorithm 3 ({:.1f}) at {:.3f} (p "
        "= {:.2f}: five seeds do not tell them apart)",
        *ends,
        _apart(*adaptive),
    )
    yield (
        "Algorithm 2 ends at {:.3f} under the flow, steady (target 0.09) at {:.3f} (p = {:.3f})",
        _mean("midpoint/rk4 paper 0.1", "flow"),
        _mean("midpoint/rk4 steady 0.09", "flow"),
        _apart("midpoint/rk4 paper 0.1", "midpoint/rk4 steady 0.09"),
    )


@of_page(PAGE)
def thresholds() -> Iterator[Sentence]:
    runs = [benchmark("frontier")["runs"][f"sphere2 euler/midpoint paper {d}"] for d in (0.2, 0.05)]
    loose, tight = (Counter(run["outcome"]) for run in runs)
    yield (
        "with 0.2 no Euler model of five is FLOW ({} TIED, {} UNDECIDED, at {:.1f} evaluations), with 0.05 all five "
        "are (at {:.1f})",
        loose["TIED"],
        loose["UNDECIDED"],
        *(fmean(run["evaluations"]) for run in runs),
    )
    assert (loose["FLOW"], tight["FLOW"]) == (0, 5)


@of_page("docs/adaptation.md")
def constants_of_algorithm_2() -> Iterator[Sentence]:
    runs = [run for name, run in benchmark("frontier")["runs"].items() if name.startswith("constants ")]
    own, flow = ([run[column] for run in runs] for column in ("own", "flow"))
    for words, of in (("stays within {:.3f} and {:.3f}", own), ("under the flow within {:.3f} and {:.3f}", flow)):
        means = [fmean(seeds) for seeds in of]
        yield words, min(means), max(means)
    yield "(analysis of variance: p = {:.2f} and {:.2f})", variance_p(own), variance_p(flow)
    told = Counter(outcome for run in runs for outcome in run["outcome"])
    counts = (sum(told.values()), told["FLOW"], told["UNDECIDED"], told["TIED"])
    yield "Of the {} models {} came out FLOW, {} UNDECIDED and {} TIED", *counts


@of_page("docs/adaptation.md")
def regressions() -> Iterator[Sentence]:
    """Pendulums by two signals."""
    of = dict[str, list[Any]]()
    for run in benchmark("error_ratio")["runs"]:
        of.setdefault(run["signal"], []).append(run)
    worse, near = ([run["ratio"] for run in of[name]] for name in ("relative_distance", "error_ratio"))
    dear, cheap = (fmean(run["evaluations"] for run in of[name]) for name in ("error_ratio", "relative_distance"))
    yield "`relative_distance` at 0.01 ended {:.1f} to {:.1f} times worse", min(worse), max(worse)
    yield (
        "{:.2f} to {:.2f} times, at {:.0f} evaluations an iteration instead of {:.0f}",
        min(near),
        max(near),
        dear,
        cheap,
    )
