"""`windermere study`: what it prints, where it writes, and how it goes on."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import Command
from tests.paper.studies.small import SMALL, TABLE
from tests.processes import ROOT
from windermere.paper.studies import registry
from windermere.paper.studies.crossing_field import CROSSINGS
from windermere.paper.studies.rows import GRID


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.STUDIES, "small", SMALL)


def test_every_study_is_listed_with_its_place_in_the_paper(run: Command) -> None:
    answer = run("study", "list")
    assert answer.code == 0
    for study in registry.STUDIES.values():
        assert study.name in answer.out
        assert study.paper.split()[0] in answer.out  # the rest may be on lines of its own


def test_a_quick_study_runs_draws_and_says_where_its_results_are(run: Command, tmp_path: Path) -> None:
    answer = run("study", "run", "small", "--quick", "--seeds", "2")
    assert answer.code == 0
    assert answer.out.split("\n")[-3:] == ["figure: runs/quick/small/drawn.txt", "results are in runs/quick/small", ""]
    assert len(TABLE.read(tmp_path / "runs/quick/small")) == 4
    assert "euler-16 20/20" in answer.err


def test_a_study_that_was_done_before_says_that_it_trained_nothing(run: Command) -> None:
    words = "nothing was trained: runs/quick/small has all these runs and seeds already; to train them yourself, name"
    flags = ("study", "run", "small", "--quick", "--seeds")
    assert words not in run(*flags, "1").err
    assert words in run(*flags, "1").err
    assert words not in run(*flags, "2").err
    assert "nothing was trained" not in run("study", "run", "sphere2-data").err


def test_a_study_stopped_by_its_time_limit_says_how_to_go_on(run: Command, tmp_path: Path) -> None:
    answer = run("study", "run", "small", "--out", tmp_path / "my study", "--seeds", "1", "--time-limit", "0s")
    assert answer.code == 0
    again = f"windermere study run small --out '{tmp_path / 'my study'}' --seeds 1\n"
    assert f"stopped (time limit), 2 runs are not done; go on with: {again}" in answer.err
    assert run("study", "run", "small", "--out", tmp_path / "my study", "--seeds", "1").code == 0
    assert len(TABLE.read(tmp_path / "my study")) == 2


def test_draw_needs_a_table_and_draws_it_again(run: Command, tmp_path: Path) -> None:
    refused = run("study", "draw", "small")
    assert (refused.code, refused.out) == (1, "")
    assert "results/small has no table to draw from: run the study first" in refused.err
    run("study", "run", "small", "--seeds", "1", "--only", "euler-1")
    (tmp_path / "results/small/drawn.txt").unlink()
    assert run("study", "draw", "small").out == "figure: results/small/drawn.txt\n"
    assert (tmp_path / "results/small/drawn.txt").exists()


def test_folders_are_merged_by_name(run: Command) -> None:
    for out, only in (("here", "euler-1"), ("there", "euler-16")):
        run("study", "run", "small", "--seeds", "1", "--only", only, "--out", out)
    answer = run("study", "merge", "small", "there", "--out", "here")
    assert "there: 1 trained seeds of runs and 1 run folders taken over" in answer.out
    refused = run("study", "merge", "small", "nowhere", "--out", "here")
    assert (refused.code, "nowhere is no study's folder" in refused.err) == (1, True)


def test_a_folder_of_other_files_is_refused_and_left_alone(run: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.csv").write_text("run,seed\neuler-1,0\n")
    refused = run("study", "run", "small", "--out", "mine")
    assert refused.code == 1
    assert "mine holds other files (table.csv, ...): choose a new or empty folder as --out" in refused.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["table.csv"]


def test_a_quick_studys_folder_is_refused_with_the_flag_that_takes_it(run: Command) -> None:
    run("study", "run", "small", "--quick", "--seeds", "1", "--only", "euler-1", "--out", "here")
    refused = run("study", "run", "small", "--out", "here")
    assert refused.code == 1
    assert refused.err.endswith("not the study 'small': choose another folder, or give --quick\n")


def test_results_without_a_study_are_refused_with_the_flag_that_names_others(run: Command) -> None:
    refused = run("study", "summary", "--page", "page.md")
    assert refused.code == 1
    assert "results holds no study's table: run a study first, or name another folder by --results\n" in refused.err


def test_a_study_that_is_computed_at_once_is_not_merged(run: Command) -> None:
    run("study", "run", "crossing-field", "--out", "there")
    refused = run("study", "merge", "crossing-field", "there", "--out", "here")
    assert (refused.code, refused.out) == (1, "")
    assert "'crossing-field' is computed at once, so there is nothing to merge: copy its folder" in refused.err
    assert not Path("here").exists()


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("study.json", "[]", "study.json is damaged (it does not say which study this is)"),
        ("provenance.json", '{"a": 3}', "provenance.json is damaged (it does not say of each run how it was made)"),
        ("provenance.json", "{", "provenance.json is damaged"),
        ("table.csv", "run,seed,method,lr\na,0,euler,1\n", "here/table.csv is damaged (the column data is missing)"),
    ],
)
def test_a_damaged_folder_is_one_sentence_before_anything_is_trained(
    run: Command,
    tmp_path: Path,
    file: str,
    text: str,
    why: str,
) -> None:
    run("study", "run", "sphere2-fixed", "--time-limit", "0s", "--out", "here")
    (tmp_path / "here" / file).write_text(text)
    refused = run("study", "run", "sphere2-fixed", "--time-limit", "0s", "--out", "here")
    assert refused.code == 1
    assert why in refused.err
    assert not list((tmp_path / "here" / "runs").glob("[!.]*"))


@pytest.mark.parametrize("flags", [("--seeds", "0"), ("--arithmetic", "fp8"), ("--arithmetic", "tf32")])
def test_flags_that_mean_nothing_are_refused_before_anything_is_made(
    run: Command,
    tmp_path: Path,
    flags: tuple[str, str],
) -> None:
    refused = run("study", "run", "small", *flags)
    assert (refused.code, refused.out) == (1, "")
    assert flags[1] in refused.err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", [study.name for study in registry.ALL if not study.runs(False)])
@pytest.mark.parametrize(
    "flags",
    [
        ("--seeds", "1"),
        ("--device", "cpu"),
        ("--time-limit", "1m"),
        ("--arithmetic", "float32"),
        ("--only", "euler-*"),
    ],
    ids=lambda flags: flags[0],
)
def test_a_study_that_is_computed_at_once_refuses_the_flags_of_training(
    run: Command,
    tmp_path: Path,
    name: str,
    flags: tuple[str, str],
) -> None:
    refused = run("study", "run", name, "--quick", *flags)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: {flags[0]} is for studies that train models, and '{name}' trains none")
    assert not list(tmp_path.iterdir())


def test_a_study_whose_data_are_missing_leaves_nothing(run: Command, tmp_path: Path) -> None:
    refused = run("study", "run", "mnist-fixed", "--quick")
    assert (refused.code, refused.out) == (1, "")
    assert "windermere data get mnist" in refused.err
    assert not (tmp_path / "runs").exists()


def test_a_merge_that_is_refused_leaves_nothing(run: Command, tmp_path: Path) -> None:
    assert run("study", "merge", "small", "nowhere").code == 1
    assert not (tmp_path / "results").exists()


def test_what_to_go_on_with_names_the_same_runs(run: Command) -> None:
    given = ("--quick", "--seeds", "3,7", "--device", "cpu", "--only", "euler-*")
    answer = run("study", "run", "small", *given, "--time-limit", "0s")
    again = "windermere study run small --out runs/quick/small --quick --seeds 3,7 --device cpu --only 'euler-*'\n"
    assert f"go on with: {again}" in answer.err


def test_a_folder_of_another_study_is_not_drawn_in(run: Command) -> None:
    run("study", "run", "small", "--quick", "--seeds", "1", "--out", "here")
    refused = run("study", "draw", "sphere2-fixed", "--out", "here")
    assert refused.code == 1
    assert "here holds the quick study 'small', not the quick study 'sphere2-fixed'" in refused.err
    assert run("study", "draw", "small", "--out", "here").code == 0


def test_an_unknown_study_is_one_sentence_and_leaves_nothing(run: Command, tmp_path: Path) -> None:
    answer = run("study", "run", "smal")
    assert answer.code == 1
    assert "there is no study 'smal': did you mean 'small'?" in answer.err
    assert not (tmp_path / "results").exists()


def test_a_toy_study_of_the_paper_runs_from_the_command_line(run: Command, tmp_path: Path) -> None:
    assert run("study", "run", "crossing-field").code == 0
    rows = CROSSINGS.read(tmp_path / "results/crossing-field")
    found = {row.step: row.crossings for row in rows if row.second is None}
    assert [found[step] for step in (1.0, 0.5, 2**-5)] == [0, 24, 0]
    assert (tmp_path / "results/crossing-field/crossing-field.svg").exists()


def test_a_training_study_of_the_paper_shows_its_claim_when_quick(run: Command, tmp_path: Path) -> None:
    """A model trained with a single Euler step loses half of its accuracy under a better solver."""
    assert run("study", "run", "sphere2-fixed", "--quick", "--seeds", "1", "--only", "euler-1").code == 0
    rows = GRID.read(tmp_path / "runs/quick/sphere2-fixed")
    own = next(row.accuracy for row in rows if row.own)
    better = next(row.accuracy for row in rows if (row.test_method, row.factor) == ("rk4", 0.5))
    assert own is not None
    assert better is not None
    assert own > 0.9
    assert better < own - 0.1
    page = run("study", "summary", "--results", "runs/quick", "--page", "page.md")
    assert (page.code, page.out) == (0, "page: page.md\n")
    assert "sphere2-fixed" in (tmp_path / "page.md").read_text()


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="a source distribution has no workflows")
def test_every_quick_study_runs_once_a_week() -> None:
    """On spheres all together, each of those on images by itself."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lists = {name: value.split() for name, value in re.findall(r"^(QUICK\w*) := (.*)$", makefile, re.MULTILINE)}
    assert sorted(name for names in lists.values() for name in names) == sorted(study.name for study in registry.ALL)
    weekly = (ROOT / ".github/workflows/studies.yml").read_text()
    assert "run: make quick-studies }" in weekly
    assert re.findall(r"QUICK_IMAGES=(\S+)", weekly) == lists["QUICK_IMAGES"]
