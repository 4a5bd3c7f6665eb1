"""docs/speed.md, drawn from benchmarks/results/peers*.json and gpu_*.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_table import gpu_sections
from benchmarks.measuring import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
COLUMNS = ("windermere", "torchdiffeq, Conv1d", "torchdiffeq", "torchode", "diffrax", "lax.scan")


HEAD = """# Speed

Drawn by `python -m benchmarks.peers table` from results that `make bench` measures anew. A training step (forward,
backward, Adam) of the paper's Sphere2 model, batch 128, float32. Milliseconds, medians taken in turns, compilation
apart; in brackets how many times Windermere's.

Every library gets its fastest form of the same field: `nn.Conv1d` as users write it, or the small dense matrices that
Windermere makes of it; members one after the other, stacked or vmapped; for diffrax each adjoint and step controller. A
dash: the library has no such method, or no such work was asked of it. torchode controls errors by sample, the others by
batch.
"""
SECTION = """
## {title}

{machine}, commit `{commit}`; {libraries}.

{table}

The forms that won, and what JAX took to compile them:

{compiled}

{agreement} {busy}

An audit of 1000 points of a Sphere2 model trained with 64 Euler steps takes {seconds:.1f} s, the cost of
{passes:.0f} forward passes over these points with the training solver.
"""


def write_page(measured: Sequence[Mapping[str, Any]]) -> None:
    PAGE.write_text(HEAD + "".join(_section(results) for results in measured) + gpu_sections(RESULTS))


def _section(results: Mapping[str, Any]) -> str:
    where, works = results["environment"], results["works"]
    versions = {"torch": where["torch"], **results["versions"]}
    head = "| work | members | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 2) + "|\n"
    forms = "| work | members | diffrax | | lax.scan | |\n|---|---|---|---|---|---|\n"
    busy = max(row["busy_cores_of_others"] for row in works)
    return SECTION.format(
        title="One core, processor time" if where["threads"] == 1 else f"{where['threads']} cores",
        machine=where["device_name"],
        commit=str(where["commit"])[:7],
        libraries=", ".join(f"{name} {version}" for name, version in versions.items()),
        table=head + "\n".join(_row(row) for row in works),
        compiled=forms + "\n".join(_compiled(row) for row in works),
        agreement=_agreement(works),
        busy=f"Other processes used up to {busy:.1f} cores when the measurements began.",
        **results["audit"],
    )


def _row(row: Mapping[str, Any]) -> str:
    seconds = dict(row["seconds"])
    seconds.setdefault("torchdiffeq, Conv1d", seconds.get("torchdiffeq"))
    ours = seconds["windermere"]
    cells = [f"{1000 * ours:.2f}"]
    for name in COLUMNS[1:]:
        value = seconds.get(name)
        cells.append("–" if value is None else f"{1000 * value:.2f} ({value / ours:.2f}x)")
    return f"| {row['work']} | {row['members']} | " + " | ".join(cells) + " |"


def _compiled(row: Mapping[str, Any]) -> str:
    cells = []
    for name in ("diffrax", "lax.scan"):
        known = name in row["forms"]
        cells += [row["forms"][name], f"{row['compile_seconds'][name]:.1f} s"] if known else ["–", ""]
    return f"| {row['work']} | {row['members']} | " + " | ".join(cells) + " |"


def _agreement(rows: Any) -> str:
    fixed, adaptive = (
        [d for row in rows if ("tolerance" in row["work"]) is wanted for d in row["differences"].values()]
        for wanted in (False, True)
    )
    (loss, gradient), (loose, its_gradient) = (
        [max(d[k] for d in found) for k in (0, 1)] for found in (fixed, adaptive)
    )
    return (
        f"All come to the same loss and gradient: on fixed grids within {loss:.1g} and {gradient:.1g} of ours "
        "(relative,\nlargest entry); "
        f"with adaptive steps, which each library chooses for itself, within {loose:.1g} and {its_gradient:.1g}."
    )
