"""What the tables say of images besides: the flow before and after, the control, and what judges otherwise."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from windermere.paper.studies.rows import Tables
from windermere.paper.studies.statistics import against, told
from windermere.paper.studies.study import Finding, of_ours, seed_count
from windermere.paper.studies.tied_sampler.findings import (
    IMAGES,
    NAMES,
    constant,
    of_setting,
    sampler_findings,
)
from windermere.paper.studies.tied_sampler.rows import OPINIONS, TUNED, OpinionRow, TunedRow
from windermere.paper.studies.tied_sampler.runs import LOSSES, MATCHING


def image_findings(tables: Tables) -> list[Finding]:
    found = sampler_findings(tables)
    for data, network in IMAGES:
        energy, reward, control = (
            constant(of_setting(tables[TUNED], data, network, k), "euler") for k in (*LOSSES, MATCHING)
        )
        case = f"{NAMES[data]}, {NAMES[network]}"
        found += _changes(energy, case)
        if control:
            claim = "What as many evaluations of flow matching do in its place."
            found.append(of_ours(claim, _controls(energy, control), case))
        found += _opinions(tables[OPINIONS], energy, case)
        found += _changes(reward, f"{case}, reward")
        found += _opinions(tables[OPINIONS], reward, case)
    return found


def _changes(tuned: dict[int, list[TunedRow]], case: str) -> Iterator[Finding]:
    """For each number of steps, the means before and after, and whether the flow's change is more than chance."""
    if tuned:
        told = "; ".join(f"{n} steps: {_change(rows)}" for n, rows in tuned.items())
        yield of_ours("What tuning does to the own samples and to the flow's.", told, case)


def _change(rows: Sequence[TunedRow]) -> str:
    own = f"own {_mean(rows, 'own_before')} to {_mean(rows, 'own')}"
    return f"{own}, {_flow_change(rows)}"


def _flow_change(rows: Sequence[TunedRow]) -> str:
    test = _test([row.flow - row.flow_before for row in rows])
    return f"flow {_mean(rows, 'flow_before')} to {_mean(rows, 'flow')} ({test})"


def _mean(rows: Sequence[TunedRow], what: str) -> str:
    return f"{fmean(getattr(row, what) for row in rows):.2g}"


def _test(differences: Sequence[float]) -> str:
    """A t-test of paired differences; of one seed there is none."""
    if len(differences) < 2:
        return seed_count(len(differences))
    return f"paired t-test, {seed_count(len(differences))}, {told(against(differences).p)}"


def _controls(energy: dict[int, list[TunedRow]], control: dict[int, list[TunedRow]]) -> str:
    rows = [row for some in control.values() for row in some]
    tied, harmed = sum(row.tied is True for row in rows), sum(row.harmed is True for row in rows)
    parts = [f"{tied} of {len(rows)} tied, {harmed} harmed, {_flow_change(next(iter(control.values())))}"]
    for n in sorted(energy.keys() & control.keys()):
        flows = {row.seed: row.flow for row in control[n]}
        more = [row.flow - flows[row.seed] for row in energy[n] if row.seed in flows]
        if more:
            parts.append(f"tuned through {n} steps, the flow's differs from that by {fmean(more):+.2g} ({_test(more)})")
    return "; ".join(parts)


def _opinions(rows: Sequence[OpinionRow], tuned: dict[int, list[TunedRow]], case: str) -> Iterator[Finding]:
    """By each of the other yardsticks, who is tied."""
    for yardstick in dict.fromkeys(row.yardstick for row in rows):
        mine = {row.key: row for row in rows if row.yardstick == yardstick}
        told_of = {n: [mine[row.key] for row in some if row.key in mine] for n, some in tuned.items()}
        words = ", ".join(f"{sum(r.tied is True for r in some)} of {len(some)} with {n}" for n, some in told_of.items())
        harmed = ", ".join(f"{sum(r.harmed is True for r in some)} with {n}" for n, some in told_of.items())
        if any(told_of.values()):
            claim = "Who is tied, if samples are judged by something that they were not tuned by as a whole."
            yield of_ours(claim, f"{words}; harmed: {harmed}", f"{case}, {yardstick}")
