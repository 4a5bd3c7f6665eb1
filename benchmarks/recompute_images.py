"""Sentences of docs/results.md about grids on images, and about tolerances."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.recompute import Row, Sentence, benchmark, numbers, of_page, rows, spread
from benchmarks.recompute_grids import own, steps

PAGE = "docs/results.md"
LEAST = {"cifar10": 0.35, "mnist": 0.8, "sphere2": 0.8}
RATES = {"0.001": "1e-3", "0.0001": "1e-4"}
NAMES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "sphere2": "Sphere2"}
STUDIES = ("cifar10-fixed", "mnist-fixed", "cifar10-adaptive", "mnist-adaptive", "sphere2-adaptive", "sphere2-adjoint")
Entries = dict[float, list[Row]]


def grids(study: str) -> Iterator[tuple[str, Entries]]:
    """By title: the rows of models that trained, by step or tolerance, the coarsest first."""
    trained = {
        (row["run"], row["seed"])
        for row in rows(study)
        if row["own"] == "true" and float(row["accuracy"] or 0) >= LEAST[row["data"]]
    }
    found = dict[str, Entries]()
    for row in (row for row in rows(study) if (row["run"], row["seed"]) in trained):
        rate = f", learning rate {RATES[row['lr']]}" if row["data"] == "cifar10" else ""
        title = f"{NAMES[row['data']]} trained with {row['method']}{rate}{', adjoint' if 'adjoint' in study else ''}"
        place = 1 / float(row["steps"]) if row["steps"] else float(row["tolerance"])
        found.setdefault(title, {}).setdefault(place, []).append(row)
    yield from ((title, dict(sorted(entries.items(), reverse=True))) for title, entries in found.items())


def drops(entry: Sequence[Row]) -> list[float]:
    """Under rk4 at half the step, or dopri54 at a tenth of the tolerance."""
    check = ("rk4", "0.5") if entry[0]["steps"] else ("dopri54", "0.1")
    finer = [row for row in entry if (row["test_method"], row["factor"]) == check]
    return [a - b for a, b in zip(own(entry), numbers(finer, "accuracy"), strict=True)]


def precision(place: float, entry: Sequence[Row]) -> str:
    return steps(int(entry[0]["steps"])) if entry[0]["steps"] else f"tolerance {place:.0e}".replace("e-0", "e-")


@of_page(PAGE)
def drops_of_grids() -> Iterator[Sentence]:
    for study in STUDIES:
        for title, entries in grids(study):
            lost = {place: drops(entry) for place, entry in entries.items()}
            several = {place for place, values in lost.items() if len(values) > 1} or set(lost)
            kept = [place for place in entries if place in several]
            worst, finest = max(kept[:-1], key=lambda place: fmean(lost[place])), kept[-1]
            above = sum(value > 0.1 for value in lost[worst])
            some = f" (above 0.1 in {above} of {len(lost[worst])} seeds)" if 0 < above < len(lost[worst]) else ""
            if title == "MNIST trained with dopri54":
                continue
            yield (
                f"{title}: trained coarsely, accuracy drops by more than 0.1 under a finer solver; trained finely, it "
                "does not | under {} times the training {}, the largest drop is {}{} at {}; at {} it is {};",
                *(("rk4 at 0.5", "step") if entries[worst][0]["steps"] else ("dopri54 at 0.1", "tolerance")),
                *(spread(lost[worst]), some, precision(worst, entries[worst])),
                *(precision(finest, entries[finest]), spread(lost[finest])),
            )


@of_page(PAGE)
def ranges_of_grids() -> Iterator[Sentence]:
    for study in STUDIES[:4]:
        for title, entries in grids(study):
            means = {place: fmean(own(entry)) for place, entry in entries.items()}
            ends = (min(means, key=lambda place: means[place]), max(means, key=lambda place: means[place]))
            yield (
                f"{title}: tested with the training solver, accuracy shows no clear dependence on the step or "
                "tolerance | from {} at {} to {} at {}",
                *(v for place in ends for v in (spread(own(entries[place])), precision(place, entries[place]))),
            )


@of_page(PAGE)
def adjoint_of_dopri54() -> Iterator[Sentence]:
    """What a model that trained loses at most."""
    (entries,) = (found for title, found in grids("sphere2-adjoint") if "dopri54" in title)
    lost = max(value for entry in entries.values() for value in drops(entry))
    yield "that trained with the adjoint, at 1e-2 or below, loses {:.3f} at most under a finer solver", lost


@of_page("docs/runs.md")
def arithmetics() -> Iterator[Sentence]:
    """In the columns of 2 and of 8 steps: one seed each."""
    runs = benchmark("arithmetic")["runs"]
    of = dict[str, list[tuple[float, float]]]()
    for run in runs:
        of.setdefault(run["config"]["arithmetic"], []).append((run["own solver"][0], run["gaps"][0]))
    for name, ((coarse, lost), (fine, kept)) in of.items():
        yield "| `{}` | {:.3f} | {:.3f}, tied | {:.3f} | {:.3f}, a flow |", name, coarse, lost, fine, kept
    columns = zip(*([own for own, _ in both] for both in of.values()), strict=True)
    yield "changed accuracy by {:.4f} at most", max(max(column) - min(column) for column in columns)
