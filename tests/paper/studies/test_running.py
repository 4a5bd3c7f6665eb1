"""A study's table is the same however it came about: in one go, in pieces, killed or not."""

import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.paper.studies.small import SEEDS, SMALL, TABLE, SmallRow, assert_same_tables, iteration, ran, study_process
from tests.processes import by_signals
from windermere.adaptation import StepAdaptation
from windermere.errors import DivergedError, RunError, UsageError, WindermereError
from windermere.paper.data import spheres
from windermere.paper.studies.folder import StudyFolder
from windermere.paper.studies.parts import Part, groups, missing_parts
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import MAIN, Table, Tables
from windermere.paper.studies.runner import Load, Progress
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Share, Study
from windermere.paper.training import RunConfig, StopSign, TrainingOutcome, train_group, train_together
from windermere.records import read_json, write_json
from windermere.solvers import Adaptive, FixedStep


def test_every_seed_of_every_run_is_a_row_with_a_provenance(whole: Path) -> None:
    keys = [row.key for row in TABLE.read(whole)]
    assert keys == [(name, seed) for name in ("euler-1", "euler-16") for seed in SEEDS]
    made = read_json(whole / "provenance.json")
    assert list(made) == ["euler-16_seeds-0-1-2", "euler-1_seeds-0-1-2"]
    assert all({"commit", "torch", "device_name", "finished", "seconds"} <= set(how) for how in made.values())
    assert (whole / "drawn.txt").read_text() == "6 rows"


def test_a_study_that_is_done_trains_nothing_again(whole: Path) -> None:
    def train(*_: Any, **__: Any) -> list[TrainingOutcome]:
        raise AssertionError("there is nothing to train")

    assert run_study(SMALL, whole, Choice(seeds=SEEDS), train=train).reason == "finished"


@by_signals
def test_a_study_killed_again_and_again_ends_with_the_same_table(whole: Path, tmp_path: Path) -> None:
    killed = 0
    for lines in (0, 7, 30):
        with study_process(tmp_path) as (process, lines_of):
            for _ in range(lines):
                lines_of.readline()
            process.kill()
            killed += process.wait() == -signal.SIGKILL
    assert killed >= 2  # the last one may be through before
    ran(tmp_path)
    assert_same_tables(tmp_path, whole)


def test_a_study_stopped_by_a_sign_names_what_is_left_and_goes_on(whole: Path, tmp_path: Path) -> None:
    sign = StopSign()

    def stop(now: Progress) -> None:
        assert 0 < now.share <= 1
        if (now.name, iteration(now)) == ("euler-16", 9):
            sign.reason = "interrupted"

    ended = run_study(SMALL, tmp_path, Choice(seeds=SEEDS), sign=sign, report=stop)
    assert (ended.reason, ended.left) == ("interrupted", ["euler-16"])
    assert {row.run for row in TABLE.read(tmp_path)} == {"euler-1"}
    ran(tmp_path)
    assert_same_tables(tmp_path, whole)


def test_runs_and_seeds_done_apart_come_to_the_same_table(whole: Path, tmp_path: Path) -> None:
    """Seeds that train in other company may differ in the last bits, their accuracies on 1000 points hardly."""
    ran(tmp_path, seeds=(2,), only="euler-16")
    ran(tmp_path, only="euler-1")
    ran(tmp_path)
    for row, expected in zip(*(TABLE.read(path) for path in (tmp_path, whole)), strict=True):
        assert row.key == expected.key
        assert row.accuracy == pytest.approx(expected.accuracy, abs=2e-3)


def test_processes_that_add_at_the_same_time_write_over_nothing(tmp_path: Path) -> None:
    """Without turns, one would add to what it read before the other wrote."""
    folder, each = StudyFolder(tmp_path, SMALL, quick=False), range(20)

    def add(name: str) -> None:
        for seed in each:
            folder.add(Tables({TABLE: [SmallRow(run=name, seed=seed)]}), {f"{name}_seeds-{seed}": {}})

    with ThreadPoolExecutor() as pool:
        list(pool.map(add, ("euler-1", "euler-16")))
    assert [row.key for row in TABLE.read(tmp_path)] == [(n, seed) for n in ("euler-1", "euler-16") for seed in each]
    assert len(read_json(tmp_path / "provenance.json")) == 2 * len(each)


def test_a_seed_that_was_begun_with_twice_is_trained_once(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path, SMALL, quick=False)
    for seeds in ((1, 2), (2, 3)):
        path = folder.runs / f"euler-1_seeds-{seeds[0]}-{seeds[1]}"
        path.mkdir()
        write_json(path / "config.json", {"seeds": seeds})
    parts = missing_parts(folder, "euler-1", replace(SMALL.runs(False)["euler-1"], seeds=(1, 3, 4)))
    assert [part.config.seeds for part in parts] == [(1, 2), (3,), (4,)]


def some_data(*, bad: bool) -> Load:
    """Data with or without a sample that is not finite: some seeds meet it in their first iterations, some do not."""
    loaded = spheres(2, train=200, test=100)
    if bad:
        loaded.train.inputs[7] = torch.inf
    return lambda name, seed: (loaded.train, loaded.test)


def test_seeds_that_diverge_are_noted_and_the_others_go_on(tmp_path: Path) -> None:
    short = replace(SMALL, runs=lambda quick: {n: replace(c, iterations=6) for n, c in SMALL.runs(quick).items()})
    choice = Choice(seeds=(0, 1, 2, 3, 4, 5), only="euler-1")
    ended = run_study(short, tmp_path, choice, load=some_data(bad=True))
    lost = ended.diverged["euler-1"]
    assert 0 < len(lost) < 6
    assert ended.left == []
    for row in TABLE.read(tmp_path):
        assert (row.accuracy is None) == (row.seed in lost)
        assert (row.diverged_at is None) == (row.seed not in lost)


@pytest.mark.parametrize("where", ["in training", "in an evaluation"])
def test_a_seed_that_diverges_among_runs_that_train_together_leaves_all_others(tmp_path: Path, where: str) -> None:
    """As on a GPU: `cpu:0` is a device like any other to what decides who trains with whom."""
    joined: list[list[str]] = []

    def train(configs: Sequence[RunConfig], *given: Any, sign: StopSign, report: Any) -> list[TrainingOutcome]:
        joined.append([str(config.solver) for config in configs])
        if len(configs) == 1:
            return train_group(configs, *given, sign=sign, report=report)
        if len(joined) > 1 or where == "in training":
            return train_together(configs, *given, sign=sign, report=report, capture=True)
        third = StopSign()
        stop = partial(setattr, third, "reason")
        train_together(
            configs,
            *given,
            sign=third,
            report=lambda i, now: stop("evaluated" if now.iteration == 3 else None),
            capture=True,
        )
        _, second = given[-1]
        raise DivergedError("seed 3 of the second run", run=second.path, seeds=(3,), iteration=3)

    runs = {name: replace(config, iterations=6, evaluate_every=3) for name, config in SMALL.runs(False).items()}
    short, seeds = replace(SMALL, runs=lambda quick: runs), (0, 1, 2, 3, 4, 5)
    load = some_data(bad=where == "in training")
    ended = run_study(short, tmp_path, Choice(seeds=seeds, device="cpu:0"), load=load, train=train)
    assert joined[0] == ["euler, h = 1", "euler, h = 1/16"]
    assert ended.left == []
    assert ended.diverged
    assert where == "in training" or ended.diverged == {"euler-16": [3]}
    rows = TABLE.read(tmp_path)
    assert [row.key for row in rows] == [(name, seed) for name in ("euler-1", "euler-16") for seed in seeds]
    for row in rows:
        assert (row.accuracy is None) == (row.seed in ended.diverged.get(row.run, []))


def test_rows_of_runs_of_another_length_are_refused_and_left_alone(tmp_path: Path) -> None:
    folder, other = tmp_path / "older", tmp_path / "newer"
    StudyFolder(folder, SMALL, quick=False)
    name, config = next(iter(SMALL.runs(False).items()))
    TABLE.write(folder, [SmallRow(run=name, seed=0, iterations=config.iterations + 1)])
    before = (folder / "table.csv").read_bytes()
    with pytest.raises(RunError, match=f"{config.iterations + 1} iterations, .* trains it for {config.iterations}: "):
        run_study(SMALL, folder, Choice())
    with pytest.raises(RunError, match="take this one away"):
        StudyFolder(other, SMALL, quick=False).merge(folder)
    assert (folder / "table.csv").read_bytes() == before


def test_a_folder_of_another_study_is_refused_and_left_alone(whole: Path) -> None:
    other = replace(SMALL, name="other")
    before = (whole / "table.csv").read_bytes()
    with pytest.raises(RunError, match="holds the study 'small', not the study 'other'"):
        run_study(other, whole, Choice())
    with pytest.raises(RunError, match="holds the study 'small', not the quick study 'small'"):
        run_study(SMALL, whole, Choice(quick=True))
    assert (whole / "table.csv").read_bytes() == before


def test_a_quick_studys_folder_is_not_taken_for_the_whole_one_and_told_how_it_would_be(tmp_path: Path) -> None:
    StudyFolder(tmp_path, SMALL, quick=True)
    with pytest.raises(RunError, match=r"holds the quick study 'small', .* or give quick=True$"):
        StudyFolder(tmp_path, SMALL, quick=False)


def test_progress_over_spheres_and_images_counts_what_an_evaluation_takes(tmp_path: Path) -> None:
    """Of the quick table1, two thousand evaluations on images take longer than millions on spheres."""
    parts = [
        Part(name=name, config=config, folder=tmp_path) for name, config in find_study("table1").runs(True).items()
    ]
    work = {data: sum(part.work for part in parts if part.config.data == data) for data in ("sphere2", "cifar10")}
    assert work["cifar10"] > work["sphere2"] > 0


def test_a_pattern_that_fits_no_run_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run of 'small' is called 'rk4': there are euler-1, euler-16"):
        ran(tmp_path / "new", only="rk4")
    assert not (tmp_path / "new").exists()


def test_data_that_is_missing_is_told_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDERMERE_DATA", str(tmp_path / "nowhere"))
    first = SMALL.runs(False)["euler-1"]
    both = {"first": first, "second": replace(first, data="mnist", solver=FixedStep.of("euler", steps=2))}
    with pytest.raises(WindermereError, match="windermere data get mnist"):
        run_study(replace(SMALL, runs=lambda quick: both), tmp_path, Choice(seeds=(0,)))
    assert list((tmp_path / "runs").iterdir()) == []


@dataclass(frozen=True, kw_only=True)
class PlaceRow:
    x: float


def test_a_study_without_runs_is_computed_and_drawn(tmp_path: Path) -> None:
    table = Table(MAIN, PlaceRow)

    def draw(tables: Tables, folder: Path) -> list[Path]:
        (folder / "drawn.txt").write_text(f"{tables[table]}")
        return [folder / "drawn.txt"]

    def compute(quick: bool, share: Share) -> Tables:
        return Tables({table: [PlaceRow(x=0.1 + 0.2)]})

    toy = Study(name="toy", paper="-", what="-", tables=(table,), draw=draw, compute=compute)
    assert run_study(toy, tmp_path, Choice()).figures == [tmp_path / "drawn.txt"]
    run_study(toy, tmp_path, Choice())
    assert table.read(tmp_path) == [PlaceRow(x=0.1 + 0.2)]
    made = read_json(tmp_path / "provenance.json")["toy"]
    assert {"commit", "torch", "device_name", "started", "finished", "seconds"} <= set(made)


def test_on_a_gpu_runs_that_differ_in_their_steps_alone_train_together(tmp_path: Path) -> None:
    config = replace(SMALL.runs(False)["euler-1"], device="cuda", seeds=SEEDS)
    changes: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"solver": FixedStep.of("euler", steps=8)},
        "c": {"seeds": (7,)},
        "d": {"solver": FixedStep.of("rk4", steps=8)},
        "e": {"solver": Adaptive("dopri54", tolerance=0.1)},
        "f": {"controller": StepAdaptation(train="euler", check="midpoint")},
        "g": {"data": "mnist"},
        "h": {"lr": 0.5},
        "i": {"device": "cpu"},
    }
    parts = [Part(name=n, config=replace(config, **c), folder=tmp_path / n) for n, c in changes.items()]
    found = [[part.name for part in group] for group in groups(parts)]
    assert found == [["a", "b", "c"], *([name] for name in "defghi")]
