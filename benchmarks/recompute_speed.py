"""Sentences about time: README's table of solves, and the tables of docs/speed.md with fields of one's own."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.recompute import Sentence, benchmark, of_page

OURS = "Windermere"
OTHERS = ("diffrax", "lax.scan", "torchdiffeq")
CORE = {
    "time MLP, 64 Euler steps": "One CPU core: 64 Euler steps",
    "time MLP, dopri5 at 1e-5, adjoint": "dopri5 at 1e-5, adjoint",
    "latent, dopri5 at 1e-3, 100 times": "latent, dopri5 at 1e-3",
}
H200 = {
    "time MLP, Euler 64": "One H200: 64 Euler steps",
    "odenet, Euler 20": "odenet, 20 Euler steps (PyTorch in TF32, JAX in float32)",
}
"""Rows of README, by what was measured."""


@of_page("README.md")
def solves_beside_others() -> Iterator[Sentence]:
    """The least of a row is bold, unless that is a tie by what is shown."""
    for name, head in CORE.items():
        ms = {who: 1000 * seconds for who, seconds in benchmark("own_field")["seconds"][name].items()}
        yield _row(head, ms, ms[OURS])
    for name, head in H200.items():
        ms = benchmark("gpu_fields")["jobs"][name]["ms"]
        yield _row(head, ms, ms.get("one kernel", ms["captured"]))


def _row(head: str, others: Mapping[str, float], ours: float) -> Sentence:
    shown = [f"{value:.1f}" for value in (ours, *(others[who] for who in OTHERS if who in others))]
    best = min(shown, key=float)
    bold = best if shown.count(best) == 1 else None
    cells = [f"{ours:.1f}", *(f"{others[who]:.1f}" if who in others else "" for who in OTHERS)]
    told = (f"**{cell}**" if cell == bold else cell for cell in cells)
    return ("| {} |" + " {} |" * len(cells), head, *told)


@of_page("docs/speed.md")
def fields_of_ones_own() -> Iterator[Sentence]:
    columns = (OURS, f"{OURS}, step by step", "torchdiffeq", "lax.scan", "diffrax")
    for name, seconds in benchmark("own_field")["seconds"].items():
        cells = (f"{1000 * seconds[who]:.2f}" if who in seconds else "–" for who in columns)
        yield ("| {} |" + " {} |" * len(columns), name, *cells)


@of_page("docs/speed.md")
def fields_of_ones_own_on_an_h200() -> Iterator[Sentence]:
    columns = ("one kernel", "captured", "step by step", "torchdiffeq", "diffrax", "lax.scan")
    jobs: dict[str, Any] = benchmark("gpu_fields")["jobs"]
    for name, job in jobs.items():
        cells = (f"{job['ms'][who]:.1f}" if who in job["ms"] else "–" for who in columns)
        yield ("| {} |" + " {} |" * len(columns), name, *cells)


@of_page("docs/speed.md")
def sphere2_beside_others() -> Iterator[Sentence]:
    columns = ("torchdiffeq, Conv1d", "torchdiffeq", "torchode", "diffrax", "lax.scan")
    for name in ("peers", "peers_one_core"):
        for work in benchmark(name)["works"]:
            seconds = work["seconds"]
            cells = (_beside(seconds.get(who), seconds["windermere"]) for who in columns)
            yield (
                "| {} | {} | {:.2f} |" + " {} |" * len(columns),
                work["work"],
                work["members"],
                1000 * seconds["windermere"],
                *cells,
            )


def _beside(other: float | None, ours: float) -> str:
    return "–" if other is None else f"{1000 * other:.2f} ({other / ours:.2f}x)"
