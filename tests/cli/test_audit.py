"""`windermere audit`: exit codes that a script can gate on, and what it says and leaves behind."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.auditing.test_known_cases import rotation_verdict
from tests.cli.commands import QUICK, Command, assert_one_sentence
from windermere.auditing import Outcome, reference
from windermere.cli.audit import EXIT_CODES, rich_table
from windermere.cli.seeds_table import show_seeds


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(("name", "outcome"), [("coarse", Outcome.TIED), ("fine", Outcome.FLOW)])
def test_a_function_that_returns_model_and_batches_is_audited(
    run: Command,
    name: str,
    outcome: Outcome,
) -> None:
    answer = run("audit", f"rotations:{name}", "--figure", f"{name}.png")
    assert answer.code == EXIT_CODES[outcome] == {"TIED": 10, "FLOW": 0}[outcome]
    assert outcome in answer.out
    assert Path(f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "\x1b" not in answer.out


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("name", "flags", "code", "words"),
    [
        ("regression", ("--metric", "rmse"), 12, "COARSE: the field is fine, its solver too coarse"),
        ("regression", ("--metric", "rmse", "--threshold", "1000"), 0, "within a factor of 1000"),
        ("unlabelled", (), 13, "--outputs classes counts decisions instead"),
        ("unlabelled", ("--outputs", "classes"), 13, "of decisions change from its own solver"),
    ],
)
def test_a_metric_and_what_outputs_are_can_be_said_by_flags(
    run: Command, name: str, flags: tuple[str, ...], code: int, words: str
) -> None:
    answer = run("audit", f"rotations:{name}", "--no-evidence", "--figure", "flags.png", *flags)
    assert answer.code == code
    assert words in answer.out


@pytest.mark.usefixtures("models")
def test_a_metric_that_there_is_not_is_refused_in_a_sentence(run: Command) -> None:
    assert_one_sentence(run("audit", "rotations:fine", "--metric", "f1"), "there is no metric 'f1'")
    assert_one_sentence(run("audit", "rotations:fine", "--metric", "energy-drift"), "energy-drift needs the energy")


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("noisy", "there is noise or dropout in the model"),
        ("boundless", "the reference flow did not converge"),
    ],
)
def test_a_flow_that_is_not_known_is_undecided_without_a_number_of_it(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    words: str,
) -> None:
    monkeypatch.setattr(reference, "LEAST_BUDGET", 512)  # to give up soon
    shown = run("audit", f"rotations:{name}", "--figure", f"{name}.png")
    assert shown.code == EXIT_CODES[Outcome.UNDECIDED] == 11
    assert words in shown.out
    assert "not known under the flow" in shown.out
    assert bool(re.search(r"the flow itself +│ - ", shown.out)) is (name == "boundless")
    assert not {"nan", "inf", "None"} & set(shown.out.replace("│", " ").split())
    assert Path(f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    values = json.loads(run("audit", f"rotations:{name}", "--json").out)[f"rotations:{name}"]
    assert {values[key] for key in ("gap", "agreement", "safe_step", "safe_solver")} == {None}
    assert (values["reference"]["metric"], values["own"]["error"]) == (None, None)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("options", [(), ("--metric", "mmd")])
def test_a_function_that_returns_a_sampler_noise_and_data_is_audited_by_sets(
    run: Command, options: tuple[str, ...]
) -> None:
    answer = run("audit", "rotations:sampler", "--no-evidence", *options)
    assert answer.code == EXIT_CODES[Outcome.TIED]
    assert f"{'mmd' if options else 'energy'} distance" in answer.out
    assert "300 generated samples are compared with 300 real ones" in " ".join(answer.out.split())


@pytest.mark.usefixtures("models")
def test_json_has_the_safe_step_and_its_solver(run: Command) -> None:
    values = json.loads(run("audit", "rotations:fine", "--no-evidence", "--json").out)["rotations:fine"]
    assert (values["safe_step"], values["safe_solver"]) == (1 / 32, "euler, h = 1/32")


def test_every_seed_of_a_run_is_audited_and_the_worst_decides_the_exit_code(run: Command) -> None:
    run("train", *QUICK, "--seeds", 2, "--out", "runs/two")
    answer = run("audit", "runs/two", "--samples", 200, "--no-evidence", "--json")
    verdicts = json.loads(answer.out)
    assert set(verdicts) == {"runs/two, seed 0", "runs/two, seed 1"}
    codes = [EXIT_CODES[Outcome(v["outcome"])] for v in verdicts.values()]
    worst = next(code for code in (10, 11, 0) if code in codes)
    assert answer.code == worst
    assert {p.name for p in Path("runs/two").glob("*.png")} == {"audit-seed0.png", "audit-seed1.png"}
    assert verdicts["runs/two, seed 0"]["samples"] == 200


def test_several_seeds_are_a_table_and_all_about_each_is_told_where_it_is_asked_for(run: Command) -> None:
    run("train", *QUICK, "--seeds", 2, "--out", "runs/two")
    short, full = (run("audit", "runs/two", "--samples", 200, "--no-evidence", *f) for f in ((), ("--verbose",)))
    verdicts = json.loads(run("audit", "runs/two", "--samples", 200, "--no-evidence", "--json").out)
    assert short.code == full.code
    rows = [row for row in short.out.splitlines() if row.startswith("│")]
    assert len(rows) == 2
    for seed, row in enumerate(rows):
        values = verdicts[f"runs/two, seed {seed}"]
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells[0] == str(seed)
        assert cells[1:3] == [f"{values['own']['metric']:.3f}", f"{values['reference']['metric']:.3f}"]
        assert float(cells[3].split()[0]) == pytest.approx(values["gap"]["value"], abs=5e-4)
        assert cells[4:] == [values["outcome"], values["safe_solver"] or "-"]
    assert "the flow itself" not in short.out
    assert "--verbose" in short.out
    assert "audit-seed0.png, runs/two/audit-seed1.png" in short.out
    assert full.out.startswith(short.out.splitlines()[0])
    assert full.out.count("the flow itself") >= 2


def test_what_holds_for_several_seeds_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    tied, flow = rotation_verdict(2, evidence=False), rotation_verdict(256, evidence=False)
    console = Console(width=200, highlight=False, markup=False)
    show_seeds({"0": tied, "3": flow, "7": tied}, console)
    shown = capsys.readouterr().out
    assert shown.count(tied.recommendation) == 1
    assert f"seeds 0, 7: {tied.recommendation}" in shown
    assert f"seed 3: {flow.recommendation}" in shown


def test_of_several_seeds_too_it_is_told_that_a_score_is_no_better_than_chance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flow = rotation_verdict(256, evidence=False)
    chance = replace(flow, sentence=f"{flow.sentence} But accuracy 0.5 is no better than chance.")
    show_seeds({"0": flow, "3": chance}, Console(width=200, highlight=False, markup=False))
    shown = capsys.readouterr().out
    assert f"seed 3: Accuracy 0.5 is no better than chance. {flow.recommendation}" in shown
    assert f"seed 0: {flow.recommendation}" in shown


@pytest.mark.parametrize(("width", "gone"), [(40, ("gap (95%)", "safe")), (60, ("gap (95%)",)), (75, ()), (200, ())])
def test_where_seeds_have_too_little_room_columns_go_and_no_number_is_cut(
    width: int, gone: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    flow = rotation_verdict(256, evidence=False)
    show_seeds({"0": flow, "3": flow}, Console(width=width, highlight=False, markup=False))
    head, *rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("┃", "│"))]
    titles = [title.strip() for title in head.strip("┃").split("┃")]
    assert titles == [title for title in ("seed", "own", "flow", "gap (95%)", "verdict", "safe") if title not in gone]
    assert [row.strip("│").split("│")[1].strip() for row in rows if "FLOW" in row] == ["1.000"] * 2


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), r"nowhere does not exist: name a folder .*, or a function .*, as package.module:function"),
        (("nowhere:load",), r"nowhere:load could not be called: there is no module 'nowhere' here: go to its folder"),
        (("rotations.py:fine",), r"there is no module 'rotations.py' here: leave out the .py"),
        (("./rotations.py:fine",), r"a module is not named by a path: go to its folder and give rotations:fine"),
        (("rotations:missing",), r"could not be called: the module 'rotations' has no function 'missing'"),
        (("rotations:",), r"could not be called: name both a module and a function, package.module:function"),
        (
            ("rotations:needy",),
            r"could not be called: let it take no arguments \(missing a required argument: 'path'\)",
        ),
        (("rotations:broken",), r"could not be audited, .* RuntimeError: .*shapes.* \(rotations.py, line \d+\): mend"),
        (("rotations:raising",), r"could not be called: ValueError: no such weights \(rotations.py, line \d+\)"),
        (("rotations:leaving",), r"could not be called: SystemExit: 3 \(rotations.py, line \d+\)"),
        ((":load",), r"could not be called"),
        (("rotations:fine", "--samples", -5), r"at least one sample"),
        (("rotations:fine", "--samples", 5, "--all"), r"--all takes them all: leave one of the two out"),
        (("rotations:wrong",), r"must return a model and batches, or a sampler, noise and data, not int"),
        (("rotations:wandering",), r"must return a model and batches, or a sampler, noise and data, not int"),
        (("rotations:raising", "--threshold", -1), r"--threshold must be a number of at least 0"),
        (("rotations:raising", "--threshold", "nan"), r"--threshold must be a number of at least 0"),
        (("rotations:raising", "--figure", "audit.pdf"), r"saved as .png or .svg, and 'audit.pdf' ends in neither"),
        (("rotations:raising", "--figure", "nowhere/audit.png"), r"nowhere is not a folder"),
        (("rotations:timed",), r"the input 1 of a batch has 5 entries .* 300 labels: .* give --shared 1$"),
        (("rotations:timed", "--shared", "s"), r"there is no input 's' that could be shared: .* 'x', 't'"),
        (
            ("rotations:timed", "--shared", "t", "--batch-axis", 0),
            r"error: --batch-axis 0 is not the samples' axis .* is 1",
        ),
        (("rotations:timed", "--shared", "t", "--batch-axis", -99), r"error: --batch-axis -99 is no axis: give"),
        (("rotations:fine", "--shared", "x"), r"error: --shared names some of several inputs, but there is only one"),
        (
            ("rotations:paired",),
            r"say by --batch-axis which .*; or name by --shared the inputs .*, such as --shared 1$",
        ),
        (("rotations:changing", "--shared", "t"), r"differs between batches, .*: give --all, which takes all"),
        (("rotations:fine", "--seed", 3), r"--seed chooses a member of a run"),
        (("rotations:fine", "--device", "cpu"), r"--device is where a run's model goes"),
        (("rotations:fine", "--figure", "elsewhere/taken.png"), r"taken.png cannot be written, since it is a folder"),
    ],
)
def test_what_cannot_be_audited_gets_one_sentence(
    run: Command,
    arguments: tuple[object, ...],
    words: str,
) -> None:
    assert_one_sentence(run("audit", *arguments), words)


@pytest.mark.usefixtures("models")
def test_what_a_function_prints_stays_out_of_the_answer(run: Command) -> None:
    answer = run("audit", "rotations:fine", "--no-evidence", "--json")
    assert json.loads(answer.out)["rotations:fine"]["outcome"] == "FLOW"
    assert "loading" in answer.err


@pytest.mark.usefixtures("models")
def test_a_place_where_no_figure_can_be_written_is_told_before_the_audit(run: Command) -> None:
    Path("audit.png").mkdir()
    answer = run("audit", "rotations:broken")
    assert_one_sentence(answer, r"the figure audit.png cannot be written, since it is a folder: choose another place")


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("shared", ["t", "1"])
def test_inputs_that_samples_share_and_their_axis_are_named_by_flags(run: Command, shared: str) -> None:
    answer = run("audit", "rotations:timed", "--shared", shared, "--batch-axis", "1", "--no-evidence")
    assert (answer.code, "FLOW" in answer.out) == (0, True)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=str)
@pytest.mark.usefixtures("models")
def test_a_verdict_about_inputs_that_samples_may_share_names_the_flag(
    run: Command,
    flags: tuple[str, ...],
) -> None:
    answer = run("audit", "rotations:summed", "--no-evidence", *flags)
    assert answer.code == EXIT_CODES[Outcome.UNDECIDED]
    assert "the input 1 is left whole: if all samples share it, give --shared 1" in answer.out
    assert "shared=" not in answer.out


def test_flags_about_a_functions_inputs_are_refused_for_a_run(run: Command) -> None:
    run("train", *QUICK, "--out", "runs/one")
    for flags in (("--shared", "t"), ("--batch-axis", 0)):
        assert_one_sentence(run("audit", "runs/one", *flags), r"--batch-axis and --shared are for a function's model")


def test_a_seed_that_a_run_does_not_have_is_named(run: Command) -> None:
    run("train", *QUICK, "--out", "runs/one")
    assert_one_sentence(run("audit", "runs/one", "--seed", 7), r"has no seed 7: it has 0")


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("columns", [200, 60, 40, 24])
def test_a_terminal_of_any_width_shows_every_digit_of_what_it_shows(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setattr("windermere.cli.audit.stdout", Console(width=columns, highlight=False, markup=False))
    shown = run("audit", "rotations:coarse", "--no-evidence").out
    assert "…" not in shown
    if columns >= 40:
        assert "midpoint, h = 1/2" in shown
    assert ("┃ as own ┃" in shown) == (columns == 200)
    assert "│ 1.000 " in shown


@pytest.mark.parametrize("columns", [200, 40])
def test_the_terminal_marks_the_same_rows_as_the_text_and_says_what_the_mark_means(columns: int) -> None:
    verdict = rotation_verdict(8, evidence=False)
    counting = [line.solver for line in verdict.table if line.counts]
    assert 0 < len(counting) < len(verdict.table)
    console = Console(width=columns, highlight=False, markup=False, record=True, file=io.StringIO())
    console.print(rich_table(verdict, console))
    shown = console.export_text()
    starred = [row.split("│")[1] for row in shown.splitlines() if row.startswith("│") and "*" in row]
    assert [cell.strip().removesuffix(" *").removesuffix(" (own)") for cell in starred] == counting
    assert "* at least as accurate as its own" in shown
