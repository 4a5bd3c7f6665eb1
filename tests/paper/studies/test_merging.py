"""A study's table is the same where folders were merged or seeds borrowed, and neither mixes arithmetics."""

import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.paper.studies.interrupted import stopped_before_change
from tests.paper.studies.small import SEEDS, SMALL, TABLE, SmallRow, assert_same_tables, iteration, ran
from windermere.errors import RunError
from windermere.paper.studies.folder import StudyFolder
from windermere.paper.studies.runner import Progress
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Study
from windermere.paper.training import StopSign
from windermere.records import RunFolder, reached, read_json, read_metrics, write_json


def test_folders_of_two_machines_merge_into_the_same_table(whole: Path, tmp_path: Path) -> None:
    ran(tmp_path / "one", only="euler-1")
    ran(tmp_path / "other", only="euler-16")
    folder = StudyFolder(tmp_path / "one", SMALL, quick=False)
    assert folder.merge(tmp_path / "other") == (3, 1)
    assert_same_tables(tmp_path / "one", whole)
    assert folder.merge(tmp_path / "other") == (0, 0)
    assert len(read_json(tmp_path / "one" / "provenance.json")) == 2


def test_a_half_trained_run_goes_on_in_the_folder_it_was_merged_into(whole: Path, tmp_path: Path) -> None:
    sign = StopSign()

    def stop(now: Progress) -> None:
        sign.reason = "time limit" if iteration(now) == 30 else None

    run_study(SMALL, tmp_path / "other", Choice(seeds=SEEDS, only="euler-16"), sign=sign, report=stop)
    ran(tmp_path / "one", only="euler-1")
    assert StudyFolder(tmp_path / "one", SMALL, quick=False).merge(tmp_path / "other") == (0, 1)
    first: list[int] = []
    run_study(SMALL, tmp_path / "one", Choice(seeds=SEEDS), report=lambda now: first.append(iteration(now)))
    assert first[0] == 31
    assert_same_tables(tmp_path / "one", whole)


def test_a_run_that_went_on_elsewhere_comes_back_with_its_checkpoint_and_then_with_its_provenance(
    whole: Path, tmp_path: Path
) -> None:
    """One machine begins it, another goes on with a copy, twice; what is less far or older is never taken."""
    here, there, old = (tmp_path / name for name in ("here", "there", "old"))
    _stopped_at(10, here)
    for copy in (there, old):
        shutil.copytree(here, copy)
    _stopped_at(30, there)
    folder = StudyFolder(here, SMALL, quick=False)
    assert folder.merge(there) == (0, 1)
    assert folder.merge(old) == (0, 0)
    assert reached(here / "runs" / "euler-16_seeds-0-1-2") == 30
    ran(there, only="euler-16")
    folder.merge(there)
    assert read_json(here / "provenance.json") == read_json(there / "provenance.json")
    ran(here)
    assert_same_tables(here, whole)


def _stopped_at(reached: int, out: Path) -> None:
    sign = StopSign()

    def stop(now: Progress) -> None:
        sign.reason = "time limit" if iteration(now) == reached else None

    run_study(SMALL, out, Choice(seeds=SEEDS, only="euler-16"), sign=sign, report=stop)


@pytest.mark.parametrize("begun", [False, True], ids=["a new run", "a run that is less far"])
def test_a_merge_stopped_before_any_of_its_changes_leaves_no_half_of_a_run_and_can_be_made_again(
    whole: Path, begun: bool, tmp_path: Path
) -> None:
    there, run = tmp_path / "there", Path("runs/euler-16_seeds-0-1-2")
    _stopped_at(10, tmp_path / "before")
    shutil.copytree(tmp_path / "before", there)
    _stopped_at(30, there)
    names = {path.name for path in (there / run).iterdir()}
    for moment in count():
        here = tmp_path / f"here-{moment}"
        shutil.copytree(tmp_path / "before", here) if begun else StudyFolder(here, SMALL, quick=False)
        folder = StudyFolder(here, SMALL, quick=False)
        stopped = stopped_before_change(moment, lambda folder=folder: folder.merge(there))  # type: ignore[misc]
        folder = StudyFolder(here, SMALL, quick=False)
        assert not list((here / "runs").glob(".*.*"))
        assert (here / run).exists() or not begun
        if (here / run).exists():
            assert {path.name for path in (here / run).iterdir()} == names
            assert reached(here / run) in ((10, 30) if begun else (30,))
        folder.merge(there)
        assert reached(here / run) == 30
        if not stopped:
            break
    assert moment > len(names)  # each file that is copied is a change
    ran(here)
    assert_same_tables(here, whole)


@pytest.mark.parametrize("used", ["here", "there"])
def test_a_merge_refuses_runs_that_are_in_use_and_leaves_them_as_they_are(used: str, tmp_path: Path) -> None:
    _stopped_at(10, tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    _stopped_at(30, tmp_path / "there")
    with RunFolder.reopen(tmp_path / used / "runs" / "euler-16_seeds-0-1-2") as run:
        with pytest.raises(RunError, match="is in use by process"):
            StudyFolder(tmp_path / "here", SMALL, quick=False).merge(tmp_path / "there")
        run.log({"iteration": 99, "seed": 0})
    assert reached(tmp_path / "here" / "runs" / "euler-16_seeds-0-1-2") == 10
    assert read_metrics(tmp_path / used / "runs" / "euler-16_seeds-0-1-2")[-1]["iteration"] == 99


def test_a_merge_that_takes_no_rows_takes_no_provenance(tmp_path: Path) -> None:
    ran(tmp_path / "one", only="euler-1")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    made = {
        name: {**how, "device_name": "another"} for name, how in read_json(tmp_path / "one/provenance.json").items()
    }
    write_json(tmp_path / "other/provenance.json", made)
    assert StudyFolder(tmp_path / "one", SMALL, quick=False).merge(tmp_path / "other") == (0, 0)
    assert "another" not in (tmp_path / "one/provenance.json").read_text()


def test_seeds_of_one_run_are_not_trained_in_different_arithmetics(tmp_path: Path) -> None:
    ran(tmp_path / "one", seeds=(0,), only="euler-1")
    made = read_json(tmp_path / "one/provenance.json")
    write_json(
        tmp_path / "one/provenance.json", {name: {**how, "arithmetic": "bfloat16"} for name, how in made.items()}
    )
    with pytest.raises(RunError, match="has seeds of 'euler-1' in bfloat16, and others would be in float32"):
        ran(tmp_path / "one", only="euler-1")
    ran(tmp_path / "other", seeds=(1,), only="euler-1")
    with pytest.raises(RunError, match="has seeds of 'euler-1' in float32, and others would be in bfloat16"):
        StudyFolder(tmp_path / "other", SMALL, quick=False).merge(tmp_path / "one")


def lending(lent: list[SmallRow], arithmetic: str = "float32") -> Study:
    """The small study beside one that has measured these seeds, each of a run by itself."""
    made = {"borrowed": "lender", "arithmetic": arithmetic}
    return replace(
        SMALL,
        borrow=lambda results, quick: (lent, {f"lender/{row.run}_seeds-{row.seed}": made for row in lent}),
    )


def test_what_is_borrowed_bit_by_bit_is_all_in_the_provenance(tmp_path: Path) -> None:
    lent = [SmallRow(run="euler-1", seed=0, accuracy=1.0)]
    run_study(lending(lent), tmp_path, Choice(seeds=(0,), only="euler-1"))
    lent.append(SmallRow(run="euler-16", seed=0, accuracy=1.0))
    run_study(lending(lent), tmp_path, Choice(seeds=(0,)))
    assert set(read_json(tmp_path / "provenance.json")) == {"lender/euler-1_seeds-0", "lender/euler-16_seeds-0"}


def test_seeds_are_not_trained_beside_borrowed_ones_of_another_arithmetic(tmp_path: Path) -> None:
    lender = lending([SmallRow(run="euler-1", seed=0, accuracy=1.0)], "bfloat16")
    with pytest.raises(RunError, match="has seeds of 'euler-1' in bfloat16, and others would be in float32"):
        run_study(lender, tmp_path, Choice(seeds=SEEDS, only="euler-1"))


def test_nothing_is_borrowed_for_a_run_whose_seeds_are_of_another_arithmetic(tmp_path: Path) -> None:
    ran(tmp_path, seeds=(0,), only="euler-1")
    before = [(tmp_path / name).read_bytes() for name in ("table.csv", "provenance.json")]
    lent = [SmallRow(run="euler-1", seed=seed, accuracy=1.0) for seed in SEEDS]
    run_study(lending(lent, "bfloat16"), tmp_path, Choice(seeds=(0,), only="euler-1"))
    assert before == [(tmp_path / name).read_bytes() for name in ("table.csv", "provenance.json")]
    run_study(lending(lent), tmp_path, Choice(seeds=SEEDS, only="euler-1"))
    assert [row.seed for row in TABLE.read(tmp_path)] == [0, 1, 2]
    made = list(read_json(tmp_path / "provenance.json"))
    assert made == ["euler-1_seeds-0", "lender/euler-1_seeds-1", "lender/euler-1_seeds-2"]


def test_a_merge_keeps_how_borrowed_seeds_were_made(tmp_path: Path) -> None:
    lender = lending([SmallRow(run="euler-1", seed=0, accuracy=1.0)], "bfloat16")
    run_study(lender, tmp_path / "one", Choice(seeds=(0,), only="euler-1"))
    assert StudyFolder(tmp_path / "other", SMALL, quick=False).merge(tmp_path / "one") == (1, 0)
    assert read_json(tmp_path / "other/provenance.json") == read_json(tmp_path / "one/provenance.json")
