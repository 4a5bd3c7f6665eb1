"""Timing side by side, and where the numbers came from."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from windermere.records import environment, write_json

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One measured number beside what it has to be."""

    name: str
    measured: float
    limit: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.met else "NOT MET"
        return f"{self.name}: {self.measured:.3g}{self.unit} (bar {sign} {self.limit:g}{self.unit}) {verdict}"


def side_by_side(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    warm_up: int = 3,
    lead: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each, taken in turns, so that a noisy neighbour hits all alike.

    `lead` runs of each, not timed, go before each timed one: libraries with threads of their own leave them spinning.
    """
    for work in contenders.values():
        for _ in range(warm_up):
            work()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            for _ in range(lead):
                work()
            begun = clock()
            work()
            seconds[name].append(clock() - begun)
    return {name: median(values) for name, values in seconds.items()}


def busy_cores(seconds: float = 0.5) -> float:
    """How many cores others use while this process sleeps (the load average would count its own work)."""
    before = _idle()
    time.sleep(seconds)
    waited = (_idle() - before) / os.sysconf("SC_CLK_TCK")
    return max(0.0, (os.cpu_count() or 1) - waited / seconds)


def wait_for_quiet(patience: float, *, below: float = 0.3) -> float:
    """Wait until others leave the cores alone, or patience (in seconds) runs out; how many they use then."""
    given_up = time.monotonic() + patience
    while (busy := busy_cores(2.0)) > below and time.monotonic() < given_up:
        time.sleep(3.0)
    return busy


def _idle() -> int:
    """Ticks that all cores together have idled, waiting for disks included."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[4]) + int(fields[5])


def keep(name: str, result: Mapping[str, Any], device: str = "cpu") -> None:
    """Write a result with its provenance to benchmarks/results/."""
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"{name}.json", {**result, "environment": environment(device)})


def show(title: str, rows: Mapping[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in rows.items():
        print(f"  {name:<44} {value if isinstance(value, str) else json.dumps(value)}")
