"""The runs that a GPU is still asked for are those that tables lack, in the order of what the claims need."""

import csv
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_studies
from benchmarks.gpu_studies import FINER, Job, missing
from windermere.paper.studies.registry import STUDIES

CONTROL = ("cifar10-fixed", "euler-16-lr1e-3")


def with_rows(root: Path, home: str, run: str, seeds: dict[int, str]) -> None:
    """Seeds that are done, and the iterations at which they diverged."""
    path = root / home / "table.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["run", "seed", "diverged_at"])
        table.writerows([run, seed, at] for seed, at in seeds.items())


def seeds_of(root: Path, study: str, run: str, *, control: bool = False) -> list[int]:
    return [job.seed for job in missing(root) if (job.study, job.run, job.control) == (study, run, control)]


def test_a_seed_that_diverged_is_replaced_and_not_tried_again(tmp_path: Path) -> None:
    with_rows(tmp_path, "results/mnist-fixed", "euler-8", {0: "4", 1: "", 2: ""})
    assert seeds_of(tmp_path, "mnist-fixed", "euler-8") == [3]
    with_rows(tmp_path, "results/mnist-fixed", "euler-8", {0: "", 1: "", 2: ""})
    assert seeds_of(tmp_path, "mnist-fixed", "euler-8") == []


def test_controls_come_first_then_the_seeds_of_table_1(tmp_path: Path) -> None:
    with_rows(tmp_path, "results/cifar10-fixed", "euler-32-lr1e-3", {0: "", 1: "", 3: ""})
    jobs = list(missing(tmp_path))
    plain = next(n for n, job in enumerate(jobs) if not job.control)
    assert all(job.control for job in jobs[:plain])
    assert not any(job.control for job in jobs[plain:])
    assert [(job.run, job.seed) for job in jobs[plain : plain + 3]] == [
        ("euler-32-lr1e-3", 2),
        ("euler-32-lr1e-3", 4),
        ("euler-64-lr1e-3", 0),
    ]


def test_a_control_of_bfloat16_is_done_when_it_is_tested_in_float32_too(tmp_path: Path) -> None:
    of = [Job(*CONTROL, seed, "bfloat16", control=True) for seed in (0, 1)]
    with_rows(tmp_path, of[0].home, of[0].run, {0: "", 1: ""})
    path = tmp_path / str(of[0].retest)
    path.parent.mkdir(parents=True)
    path.touch()
    assert [job for job in missing(tmp_path) if job in of] == of[1:]


def test_what_either_folder_has_is_not_missing(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with_rows(one, "results/mnist-adaptive", "dopri54-1e-1", {1: ""})
    with_rows(other, "results/mnist-adaptive", "dopri54-1e-1", {2: ""})
    lacking = [job.seed for job in missing(one, other) if job.run == "dopri54-1e-1" and job.study == "mnist-adaptive"]
    assert lacking == [3]


def test_every_job_is_a_run_of_its_study_and_asked_for_once(tmp_path: Path) -> None:
    jobs = list(missing(tmp_path))
    assert len(set(jobs)) == len(jobs)
    assert all(job.run in STUDIES[job.study].planned(False) for job in jobs)
    assert {(job.study, job.run) for job in jobs if job.control} == set(FINER)


def test_what_is_trained_once_for_two_studies_is_the_same_training() -> None:
    fixed, critical = (STUDIES[name].runs(False) for name in ("cifar10-fixed", "critical-steps"))
    shared = {run for run in critical if run.startswith("cifar10-")}
    assert shared
    assert all(critical[run] == fixed[run.removeprefix("cifar10-")] for run in shared)


def test_a_job_continues_the_committed_table_by_study_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[list[str]]()

    def run(command: list[str], **_: Any) -> Any:
        told.append(command[3:])
        return subprocess.CompletedProcess(command, 0, stdout="{}")

    monkeypatch.setattr(gpu_studies, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(subprocess, "run", run)
    plain, control = Job("mnist-fixed", "rk4-1", 3), Job(*CONTROL, 0, "bfloat16", control=True)
    with_rows(tmp_path / "repository", plain.home, plain.run, {1: ""})
    folder = tmp_path / "folder"
    assert gpu_studies.train(plain, folder, 60.4) == 0
    assert (folder / plain.home / "table.csv").exists()
    options = "--arithmetic bfloat16 --seeds 3, --only rk4-1 --time-limit 60s --device cuda"
    assert told == [["study", "run", "mnist-fixed", "--out", str(folder / plain.home), *options.split()]]
    assert gpu_studies.train(control, folder, 60) == 0
    assert told[-1][:5] == ["evaluate", str(folder / control.weights), "--solver", "rk4", "--steps"]
    assert (folder / str(control.retest)).read_text() == "{}"
