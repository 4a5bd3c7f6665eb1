"""Runs on images that the results still lack, in the order of what the claims need, and a GPU that trains them.

    python -m benchmarks.gpu_studies                    # lists them
    python -m benchmarks.gpu_studies FOLDER SECONDS     # trains what fits into the time, by `windermere study run`

FOLDER is laid out as the repository is: tables of `results/` are copied there and continued. What comes back, all but
the folders `runs`, belongs over the repository. Started again with the same folder, it goes on where it was.
"""

import csv
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import count
from pathlib import Path

from windermere.paper.studies.registry import STUDIES

ROOT, CONTROLS = Path(__file__).parent.parent, "benchmarks/results/controls"
FINER = {
    ("cifar10-fixed", "euler-16-lr1e-3"): ("rk4", "--steps", "32"),
    ("cifar10-adaptive", "fehlberg21-1e-2-lr1e-3"): ("dopri54", "--tolerance", "1e-3"),
}
"""Controls of arithmetic: what models of bfloat16 are tested with in float32 once more, beside their own solver."""
WANTED = (
    ("cifar10-fixed", "euler-32-lr1e-3", 5, 0),
    ("cifar10-fixed", "euler-64-lr1e-3", 5, 0),
    ("cifar10-fixed", "*-lr1e-3", 3, 0),
    ("step-adaptation-cifar10", "*-paper-0.1", 3, 0),
    ("step-adaptation-mnist", "*-paper-0.1", 3, 1),
    ("step-adaptation-[cm]*", "*", 3, 1),
    ("mnist-fixed", "*", 3, 1),
    ("mnist-adaptive", "*", 3, 1),
    ("tied-sampler-images", "*", 5, 0),
    ("critical-steps", "cifar10-*-lr1e-3", 2, 3),
    ("critical-steps", "cifar10-*-lr1e-4", 2, 3),
    ("cifar10-adaptive", "*-lr1e-3", 3, 0),
)
"""Studies, runs, how many seeds that train these should have, and the first seed to ask for. (MNIST's seed 0 diverges;
critical-steps began with 3.)"""


@dataclass(frozen=True)
class Job:
    """One seed of a run."""

    study: str
    run: str
    seed: int
    arithmetic: str = "bfloat16"
    control: bool = False

    @property
    def home(self) -> str:
        """The study's folder, from the root of the repository."""
        return f"{CONTROLS}/{self.arithmetic}/{self.study}" if self.control else f"results/{self.study}"

    @property
    def weights(self) -> str:
        return f"{self.home}/runs/{self.run}_seeds-{self.seed}"

    @property
    def retest(self) -> str | None:
        wanted = self.control and self.arithmetic == "bfloat16"
        return f"{CONTROLS}/retested/{self.run}-{self.seed}.json" if wanted else None


def missing(*roots: Path) -> Iterator[Job]:
    """What none of these folders has, each once."""
    yield from dict.fromkeys((*_controls(roots), *_seeds(roots)))


def _controls(roots: Sequence[Path]) -> Iterator[Job]:
    fixed, adaptive = FINER
    asked = [(fixed, seed, name) for name in ("bfloat16", "tf32") for seed in range(3)]
    asked += [(adaptive, 0, "bfloat16"), (adaptive, 0, "tf32"), (fixed, 0, "float32")]
    for (study, run), seed, arithmetic in asked:
        job = Job(study, run, seed, arithmetic, control=True)
        tested = job.retest is None or any((root / job.retest).exists() for root in roots)
        if not tested or seed not in _seeds_of(roots, job.home, run)[0]:
            yield job


def _seeds(roots: Sequence[Path]) -> Iterator[Job]:
    """Where a pattern means several runs, those with the fewest seeds come first."""
    for studies, pattern, wanted, first in WANTED:
        found = list[tuple[int, Job]]()
        for study in (name for name in STUDIES if fnmatch(name, studies)):
            for run in STUDIES[study].planned(False):
                if fnmatch(run, pattern):
                    tried, trained = _seeds_of(roots, f"results/{study}", run)
                    untried = (seed for seed in count(first) if seed not in tried)
                    ranks = range(len(trained), wanted)
                    found += [(rank, Job(study, run, seed)) for rank, seed in zip(ranks, untried, strict=False)]
        yield from (job for _, job in sorted(found, key=lambda pair: pair[0]))


def _seeds_of(roots: Sequence[Path], home: str, run: str) -> tuple[set[int], set[int]]:
    """Those that tables have of a run, and of these the ones that did not diverge."""
    rows = list[dict[str, str]]()
    for table in (path for root in roots if (path := root / home / "table.csv").exists()):
        with table.open(newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["run"] == run]
    return {int(row["seed"]) for row in rows}, {int(row["seed"]) for row in rows if not row.get("diverged_at")}


def train(job: Job, folder: Path, seconds: float) -> int:
    """One job, as far as the time allows; its exit code."""
    home, weights = folder / job.home, folder / job.weights
    if not home.exists() and (ROOT / job.home).exists():
        shutil.copytree(ROOT / job.home, home, ignore=shutil.ignore_patterns("runs", "*.png", "*.svg"))
    twin = folder / Job("cifar10-fixed", job.run.removeprefix("cifar10-"), job.seed).weights
    if job.study == "critical-steps" and twin.exists() and not weights.exists():
        shutil.copytree(twin, weights)  # the same training, which is measured otherwise
    options = [] if STUDIES[job.study].own_runs(False) else ["--arithmetic", job.arithmetic]
    options += ["--seeds", f"{job.seed},", "--only", job.run, "--time-limit", f"{seconds:.0f}s"]
    code = _windermere("study", "run", job.study, "--out", home, *options).returncode
    if code == 0 and job.retest is not None:
        told = _windermere("evaluate", weights, "--solver", *FINER[job.study, job.run], "--json")
        code, file = told.returncode, folder / job.retest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(told.stdout) if code == 0 else print(told.stdout)
    return code


def _windermere(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windermere", *map(str, words), "--device", "cuda"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("\n".join(f"{job.study} {job.run} seed {job.seed} in {job.arithmetic}" for job in missing(ROOT)))
        return 0
    folder, end = Path(arguments[0]), time.monotonic() + float(arguments[1])
    for job in list(missing(ROOT, folder)):
        if (left := end - time.monotonic()) < 20:
            break
        print(f"{job.run}, seed {job.seed}: exit code {train(job, folder, left)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
