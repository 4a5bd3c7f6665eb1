"""`windermere study`: what it prints, where it writes, and how it goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.commands import Command
from tests.paper.studies.own import OWN, SQUARES
from tests.paper.studies.small import SMALL, TABLE
from tests.processes import ROOT
from windermere.cli import console, names
from windermere.cli.findings import tell_findings
from windermere.paper.studies import fan, registry
from windermere.paper.studies.costs import COSTS
from windermere.paper.studies.crossing_field import CROSSINGS
from windermere.paper.studies.rows import GRID
from windermere.paper.studies.study import ONE_SEED, Finding


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.STUDIES, "small", SMALL)


def test_every_study_is_listed_with_its_place_in_the_paper(run: Command) -> None:
    answer = run("study", "list")
    assert answer.code == 0
    for study in registry.STUDIES.values():
        assert study.name in answer.out
        assert study.paper.split()[0] in answer.out  # the rest may be on lines of its own


def test_the_list_tells_costs_and_what_is_there(run: Command) -> None:
    run("study", "run", "small", "--seeds", "1", "--only", "euler-1")
    run("study", "run", "sphere2-data")
    out = run("study", "list").out
    assert "takes about 76 min on a CPU; quick, seconds. Here: nothing yet" in out
    assert "Here: 1 of 2 runs, one seed at most, in results/small" in out
    assert "Here: done, in results/sphere2-data" in out


def test_the_list_as_json_has_names_figures_costs_and_what_is_there(run: Command) -> None:
    run("study", "run", "small", "--seeds", "2", "--quick")
    listed = {entry["name"]: entry for entry in json.loads(run("study", "list", "--json").out)}
    assert listed["sphere2-fixed"]["figures"] == ["figure4", "figure4a", "figure4b"]
    assert listed["cifar10-adaptive"]["figures"] == ["figure4c", "figure4d"]
    assert listed["sphere2-fixed"]["cost"] == {"full": 76, "on": "CPU", "quick": 0.4, "unit": "min"}
    assert listed["small"]["here"] == [{"folder": "runs/quick/small", "runs": 2, "done": 2, "seeds": 2}]
    assert listed["fan"]["here"] == []


@pytest.mark.parametrize("width", ["40", "80"])
def test_the_list_loses_nothing_on_a_narrow_terminal(run: Command, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    wide = run("study", "list").out.split()
    monkeypatch.setattr(console, "stdout", Console(force_terminal=True, no_color=True, width=int(width)))
    lines = run("study", "list").out.splitlines()
    assert max(map(len, lines)) <= int(width)
    assert " ".join(lines).split() == wide


def test_a_study_is_found_by_its_figure(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan, "FINEST", -3.5)  # a tenth of all steps
    answer = run("study", "run", "Figure3", "--quick")
    assert "Figure3 is the study fan (Figure 3)" in answer.err
    assert answer.out.splitlines()[-1] == "files: runs/quick/fan: fan.png"
    assert run("study", "draw", "figure3", "--quick").code == 0
    assert "there is no study 'figure9'" in run("study", "run", "figure9").err


def test_every_figure_and_table_of_the_paper_has_a_study() -> None:
    figures = {alias for alias in registry.ALIASES if alias[-1].isdecimal()}
    assert figures == {f"figure{number}" for number in range(1, 6)} == {*names.FIGURES}
    assert registry.find_study("figure5a").name == "step-adaptation-cifar10"
    assert {study.name for study in registry.ALL} == COSTS.keys()


def test_a_study_ends_with_its_findings_and_names_its_files_in_one_line(run: Command) -> None:
    lines = run("study", "run", "crossing-field").out.splitlines()
    assert lines[0].startswith("the paper: ")
    assert lines[1].startswith("  agrees: ")
    assert [line for line in lines if line.startswith("of ")] == ["of 3 findings, 3 agree"]
    assert lines[-1] == "files: results/crossing-field: crossing-field.png"


def finding(agrees: bool | None, **more: Any) -> Finding:
    return Finding(**{"claim": "A claim.", "ours": "our numbers", "agrees": agrees, **more})


def test_findings_are_told_by_claim_each_with_a_word_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [finding(True, case="Euler"), finding(False, case="rk4"), finding(None, claim="Another.")]
    tell_findings([*cases, finding(None, claim="More.", beyond=True)], tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "the paper: A claim.",
        "  agrees: Euler: our numbers",
        "  differs: rk4: our numbers",
        "the paper: Another.",
        "  open: our numbers",
        "beyond the paper: More.",
        "  ours: our numbers",
        "of 3 findings, 1 agrees, 1 differs, 1 is open",
    ]


def test_findings_that_count_for_nothing_are_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell_findings([finding(True), finding(True, apart=ONE_SEED), finding(None, apart=ONE_SEED)], tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == "of 1 finding, 1 agrees; 2 counted apart (one seed)"


def test_what_differs_leads_to_our_notes_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.md").write_text("Because.")
    tell_findings([finding(False)], tmp_path)
    assert capsys.readouterr().out.endswith(f"why we think it differs: {tmp_path / 'notes.md'}\n")
    tell_findings([finding(True)], tmp_path)
    assert "why" not in capsys.readouterr().out


def test_a_summary_lies_with_its_results_unless_a_page_is_named(run: Command, tmp_path: Path) -> None:
    run("study", "run", "sphere2-data")
    assert run("study", "summary").out == "page: results/results.md\n"
    assert (tmp_path / "results/results.md").exists()


def test_a_quick_study_runs_draws_and_says_where_its_results_are(run: Command, tmp_path: Path) -> None:
    answer = run("study", "run", "small", "--quick", "--seeds", "2")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "files: runs/quick/small: drawn.txt"
    assert len(TABLE.read(tmp_path / "runs/quick/small")) == 4
    assert "euler-16  20/20" in answer.err


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
    assert run("study", "draw", "small").out == "files: results/small: drawn.txt\n"
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


@pytest.mark.parametrize("name", [study.name for study in registry.ALL if not study.planned(False)])
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
    assert (tmp_path / "results/crossing-field/crossing-field.png").exists()


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


def test_figures_for_print_of_results_that_are_not_there_are_a_sentence(run: Command, tmp_path: Path) -> None:
    answer = run("study", "figures", "--results", tmp_path / "none", "--out", tmp_path / "paper")
    assert answer.code == 1
    assert "has no table of 'trajectories': run that study first" in answer.err
    assert not (tmp_path / "paper").exists()


def test_a_study_with_runs_of_its_own_is_chosen_from_stopped_and_never_merged(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.STUDIES, "own", OWN)
    assert run("study", "run", "own", "--seeds", "1", "--only", "a-*").code == 0
    assert [row.key for row in SQUARES.read(Path("results/own"))] == [("a-name", 0)]
    for flag, value in (("--device", "cpu"), ("--arithmetic", "bfloat16")):
        refused = run("study", "run", "own", flag, value)
        assert refused.code != 0
        assert f"'own' trains on the CPU in float32 and nothing else: leave {flag} out" in " ".join(refused.err.split())
    stopped = run("study", "run", "own", "--time-limit", "0.000001")
    assert "stopped (time limit), 2 runs are not done; go on with: windermere study run own" in stopped.err
    merged = run("study", "merge", "own", "results/own", "--out", "here")
    assert "'own' does its runs in one folder, so there is nothing to merge: copy its folder" in merged.err
    assert "nothing was trained" not in run("study", "run", "own").err
    assert "nothing was trained" in run("study", "run", "own").err
    assert "2 of 2 runs, 3 seeds at most, in results/own" in " ".join(run("study", "list").out.split())
