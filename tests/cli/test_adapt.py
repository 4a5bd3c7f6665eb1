"""`windermere train --adapt`: from no choice of precision to a run with its figure, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import EULER, QUICK, SHORT, SPHERES, Command, assert_one_sentence, files
from tests.paper.training.small import adapted_config
from windermere.cli.adapted import ended_at_a_bound
from windermere.records import read_metrics

ADAPTED: tuple[object, ...] = (*SPHERES, "--adapt", "paper", "--iterations", 100)


@pytest.mark.parametrize("method", ["euler", "fehlberg21"])
@pytest.mark.parametrize("adapt", ["paper", "steady"])
def test_an_adapted_run_needs_no_precision_and_draws_its_figure(
    run: Command,
    tmp_path: Path,
    method: str,
    adapt: str,
) -> None:
    answer = run("train", "--out", "run", *ADAPTED, "--adapt", adapt, "--solver", method, "--seeds", 2)
    assert answer.code == 0, answer
    assert answer.out.splitlines()[-2:] == ["results are in run", "figure: run/adaptation.png"]
    assert (tmp_path / "run" / "adaptation.png").read_bytes().startswith(b"\x89PNG")
    decisions = [(row["seed"], row["iteration"]) for row in read_metrics(tmp_path / "run") if "before" in row]
    assert decisions == [(0, 50), (1, 50), (0, 100), (1, 100)]


def test_with_json_the_figure_is_drawn_silently(run: Command, tmp_path: Path) -> None:
    answer = run("train", "--out", "run", *ADAPTED, "--solver", "euler", "--json")
    assert answer.code == 0, answer
    assert json.loads(answer.out)["finished"] is True
    assert (tmp_path / "run" / "adaptation.png").exists()


def test_without_a_review_there_is_no_figure(run: Command, tmp_path: Path) -> None:
    for folder, flags in (("short", (*QUICK, "--adapt", "paper")), ("plain", QUICK)):
        answer = run("train", "--out", folder, *flags)
        assert answer.code == 0, answer
        assert "figure" not in answer.out
        assert not (tmp_path / folder / "adaptation.png").exists()


@pytest.mark.parametrize("flag", [("--check", "midpoint"), ("--threshold", 0.2), ("--target", 0.02)], ids=str)
def test_a_flag_of_adaptation_is_refused_without_it(run: Command, tmp_path: Path, flag: tuple[object, ...]) -> None:
    for none in ((), ("--adapt", "none")):
        answer = run("train", "--out", "run", *QUICK, *none, *flag)
        assert_one_sentence(answer, f"{flag[0]} is for --adapt", "is not adapted", "or choose --adapt")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("adapt", "flag", "other"), [("paper", "--target", "steady"), ("steady", "--threshold", "paper")]
)
def test_a_flag_of_the_other_adaptation_is_refused_also_on_a_resumed_run(
    run: Command,
    tmp_path: Path,
    adapt: str,
    flag: str,
    other: str,
) -> None:
    words = f"{flag} is for --adapt {other}, and this run has --adapt {adapt}: leave it out"
    assert_one_sentence(run("train", "--out", "run", *QUICK, "--adapt", adapt, flag, 0.02), f"{words}, or choose")
    assert list(tmp_path.iterdir()) == []
    assert run("train", "--out", "run", *QUICK, "--adapt", adapt, "--time-limit", 0).code == 0
    for again in ((), ("--adapt", adapt)):
        assert_one_sentence(run("train", "--out", "run", "--resume", *again, flag, 0.02), f"{words}$")


@pytest.mark.parametrize("value", [0, -0.1, 1, 1.5, "nan", "inf"])
@pytest.mark.parametrize(("adapt", "flag"), [("paper", "--threshold"), ("steady", "--target")])
def test_a_share_lies_between_0_and_1(run: Command, tmp_path: Path, adapt: str, flag: str, value: object) -> None:
    answer = run("train", "--out", "run", *QUICK, "--adapt", adapt, flag, value)
    assert_one_sentence(answer, f"{flag} must lie above 0 and below 1, not {float(str(value))}")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_adaptation_is_refused(run: Command, tmp_path: Path) -> None:
    for flags in ((), ("--target", 0.1)):
        answer = run("train", "--out", "run", *SPHERES, *EULER, "--adapt", "steadily", *flags)
        assert_one_sentence(answer, "adapt", "'?steadily'?", "paper")
    assert list(tmp_path.iterdir()) == []


def test_adapt_none_is_as_if_it_were_not_there(run: Command, tmp_path: Path) -> None:
    assert_one_sentence(run("train", "--out", "run", *SPHERES, "--solver", "euler", "--adapt", "none"), "exactly one")
    assert list(tmp_path.iterdir()) == []
    assert run("train", "--out", "run", *QUICK, "--adapt", "none").code == 0


@pytest.mark.parametrize("adapt", ["paper", "steady"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--solver", "fehlberg21", "--control", "sample"), "--control sample is not for adapted runs"),
        (("--solver", "dopri54", "--tolerance", 1e-3, "--control", "sample"), "--control sample is not for adapted"),
        (("--solver", "euler", "--control", "sample"), "--control sample is not for adapted runs"),
        (("--solver", "euler", "--control", "batch"), "--control .* euler has none: leave it out"),
        (("--solver", "dopri54", "--control", "banana"), "error control 'banana'"),
    ],
    ids=str,
)
def test_the_control_of_a_sample_is_refused(
    run: Command,
    tmp_path: Path,
    adapt: str,
    flags: tuple[object, ...],
    words: str,
) -> None:
    assert_one_sentence(run("train", "--out", "run", *SPHERES, "--adapt", adapt, *flags), words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("adapt", ["paper", "steady"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("euler", "--steps", 501), r"h = 1/501, .* no finer than euler, h = 1/500, a budget of 500 steps: start"),
        (("euler", "--step", 1e-4), "h = 1/10000, .* no finer than euler, h = 1/500, a budget of 500 steps: start"),
        (("euler", "--step", 1.5), r"h = 1\.5, .* no coarser than euler, h = 1: start within that"),
        (("dopri54", "--tolerance", 1e-9), "tol = 1e-09, .* no finer than dopri54, tol = [0-9.]+e-07: start"),
    ],
    ids=str,
)
def test_a_start_that_adaptation_would_not_take_is_refused(
    run: Command,
    tmp_path: Path,
    adapt: str,
    flags: tuple[object, ...],
    words: str,
) -> None:
    answer = run("train", "--out", "run", *SPHERES, "--adapt", adapt, "--solver", *flags)
    assert_one_sentence(answer, "adaptation cannot start from", words)
    assert list(tmp_path.iterdir()) == []


def test_a_start_at_the_budget_itself_is_taken(run: Command, tmp_path: Path) -> None:
    flags = (*SPHERES, "--solver", "euler", "--steps", 500, "--adapt", "steady", "--iterations", 1)
    assert run("train", "--out", "run", *flags).code == 0
    assert [row["step"] for row in read_metrics(tmp_path / "run")] == [1 / 500]


@pytest.mark.parametrize("adapt", ["paper", "steady"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("bosh32",), ("bosh32 cannot be adapted: adapt", "euler or midpoint", "--check", "fehlberg21 or")),
        (("tsit54", "--tolerance", 1e-3), ("tolerances of tsit54 cannot be adapted", "fehlberg21 or dopri54")),
        (("dopri54", "--steps", 8), ("steps of dopri54 cannot be adapted, since no method has a higher order",)),
        (("fehlberg21", "--check", "rk4"), ("fehlberg21 are checked by dopri54, not by rk4: leave --check out",)),
        (("rk4",), ("'rk4' have no usual check: choose one of a higher order with --check \\(dopri54, tsit54\\)",)),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_check_is_told_what_can_be_adapted(
    run: Command,
    tmp_path: Path,
    adapt: str,
    flags: tuple[object, ...],
    words: tuple[str, ...],
) -> None:
    answer = run("train", "--out", "run", *SPHERES, "--adapt", adapt, "--solver", *flags)
    assert_one_sentence(answer, *words)
    assert "check_ratio" not in answer.err
    assert list(tmp_path.iterdir()) == []


def test_steps_of_any_method_can_be_adapted_with_a_check_of_a_higher_order(run: Command) -> None:
    for flags in (
        ("heun", "--check", "rk4"),
        ("rk4", "--check", "dopri54"),
        ("bosh32", "--steps", 4, "--check", "rk4"),
    ):
        answer = run("train", "--out", flags[0], *SPHERES, "--adapt", "steady", "--iterations", 1, "--solver", *flags)
        assert answer.code == 0, answer


ALONE = "euler alone, from each seed's initial step"


@pytest.mark.parametrize(
    ("started", "flags", "words"),
    [
        (("euler", "--steps", 8), ("--solver", "euler"), rf"--solver euler, h = 1/8 \(not {ALONE}\)"),
        (("euler", "--steps", 8), ("--solver", "euler", "--adapt", "steady"), rf"h = 1/8 \(not {ALONE}\)"),
        (("euler",), ("--solver", "euler", "--steps", 8), rf"--solver {ALONE} \(not euler, h = 1/8\)"),
        (("euler",), ("--solver", "euler", "--steps", 1), rf"--solver {ALONE} \(not euler, h = 1\)"),
        (("euler",), ("--solver", "midpoint"), rf"--solver {ALONE} \(not midpoint alone"),
        (("dopri54", "--tolerance", 1e-3), ("--solver", "dopri54"), r"tol = 0\.001 \(not dopri54, tol = 1e-06\)"),
        (("dopri54", "--tolerance", 1e-3), ("--check", "rk4"), r"--check dopri54 \(not rk4\): resume it without this"),
        (("euler",), ("--solver", "euler", "--adapt", "paper"), r"--adapt steady \(not paper\): resume it without"),
        (("euler",), ("--adapt", "none"), r"--adapt steady \(not none\): resume it without this"),
        (("euler",), ("--target", 0.5), r"--target 0\.01 \(not 0\.5\): resume it without this"),
    ],
    ids=str,
)  # fmt: skip
def test_a_resumed_run_starts_from_where_it_did(
    run: Command,
    tmp_path: Path,
    started: tuple[object, ...],
    flags: tuple[object, ...],
    words: str,
) -> None:
    quick = (*SPHERES, *SHORT, "--adapt", "steady", "--time-limit", 0, "--solver")
    assert run("train", "--out", "run", *quick, *started).code == 0
    before = files(tmp_path)
    answer = run("train", "--out", "run", "--resume", *flags)
    assert_one_sentence(answer, words)
    assert not re.search("first-step|exactly one of|check_ratio", answer.err)
    assert files(tmp_path) == before


def test_a_run_folder_from_before_controllers_is_refused_in_a_sentence_and_stays_as_it_is(
    run: Command,
    tmp_path: Path,
) -> None:
    assert run("train", "--out", "run", *QUICK).code == 0
    path = tmp_path / "run" / "config.json"
    values = json.loads(path.read_text())
    del values["controller"]
    path.write_text(json.dumps({**values, "adapt": "none", "threshold": 0.1, "target": 0.01}))
    before = files(tmp_path)
    for command in (("train", "--resume", "--out", "run"), ("evaluate", "run"), ("audit", "run")):
        answer = run(*command)
        assert_one_sentence(answer, "does not know: adapt, target, threshold; use the version .* or train anew in")
    assert files(tmp_path) == before


def test_adaptation_is_not_added_to_a_run_that_was_started_without(run: Command) -> None:
    assert run("train", "--out", "run", *QUICK, "--time-limit", 0).code == 0
    for flags in (("--adapt", "steady"), ("--adapt", "steady", "--solver", "euler", "--target", 0.1)):
        answer = run("train", "--out", "run", "--resume", *flags)
        assert_one_sentence(answer, r"run was started with --adapt none \(not steady\): resume it without this")
    assert_one_sentence(run("train", "--out", "run", "--resume", "--check", "rk4"), "is not adapted: leave it out$")


@pytest.mark.parametrize("method", ["euler", "dopri54"])
def test_an_adapted_run_is_resumed_with_the_same_flags_or_some_or_none(run: Command, method: str) -> None:
    adapted = ("--solver", method, "--adapt", "steady", "--target", 0.02)
    assert run("train", "--out", "run", *SPHERES, *SHORT, *adapted, "--time-limit", 0).code == 0
    for flags in (adapted, ("--solver", method), ("--target", 0.02), ()):
        answer = run("train", "--out", "run", "--resume", *flags)
        assert answer.code == 0, answer


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (("euler", "--steps", 400), "seeds 3 and 5 ended at the budget of 500 steps: their distance may be above the"),
        (("dopri54", "--tolerance", 3e-7), "seeds 3 and 5 ended at the floor of tolerance 2.5e-07: their distance may"),
    ],
    ids=str,
)
def test_seeds_that_ended_at_a_bound_are_told_in_one_line(
    run: Command,
    start: tuple[object, ...],
    line: str,
) -> None:
    flags = (*SPHERES, "--adapt", "steady", "--target", 1e-12, "--iterations", 51, "--seeds", "3,5", "--solver", *start)
    answer = run("train", "--out", "run", *flags)
    assert answer.code == 0, answer
    told, results, _ = answer.out.splitlines()[-3:]
    assert told.startswith(line)
    assert results == "results are in run"
    again = run("train", "--out", "run", "--resume", "--json")
    assert json.loads(again.out)["finished"] is True
    assert told in again.err.splitlines()


def test_only_the_last_decision_of_a_seed_says_where_it_ended() -> None:
    held = {"after": 1 / 500, "reason": "scores differ: step decreased as far as the budget allows"}
    freed = {"after": 1.1 / 500, "reason": "scores agree: step increased"}
    config = adapted_config("paper", seeds=(0, 3))
    rows: list[dict[str, Any]] = [{"seed": 0, **held}, {"seed": 3, **freed}]
    end = [{"seed": seed, "loss": 1.0, "step": 1 / 500} for seed in (0, 3)]
    told = "ended at the budget of 500 steps: its scores may differ by more than the threshold"
    assert ended_at_a_bound(config, [*rows, *end]) == f"seed 0 {told}"
    assert ended_at_a_bound(config, [*rows, {"seed": 0, **freed}, {"seed": 3, **held}, *end]) == f"seed 3 {told}"
    assert ended_at_a_bound(config, [*rows, {"seed": 0, **freed}, *end]) is None
    assert ended_at_a_bound(config, end) is None


def test_a_bound_that_was_reached_only_after_the_last_update_is_not_told(run: Command, tmp_path: Path) -> None:
    flags = (*SPHERES, "--adapt", "steady", "--target", 1e-12, "--iterations", 50, "--solver", "euler", "--steps", 400)
    answer = run("train", "--out", "run", *flags)
    (row,) = (row for row in read_metrics(tmp_path / "run") if "reason" in row)
    assert "as far as the budget allows" in row["reason"]
    assert "ended at" not in answer.out


@pytest.mark.parametrize(("own", "other"), [((), ("--adapt", "paper")), (("--adapt", "paper"), ())], ids=str)
def test_a_run_does_not_go_on_from_the_checkpoint_of_one_that_adapts_otherwise(
    run: Command,
    tmp_path: Path,
    own: tuple[object, ...],
    other: tuple[object, ...],
) -> None:
    for folder, adapt in (("own", own), ("other", other)):
        assert run("train", *QUICK, *adapt, "--time-limit", 0, "--out", folder).code == 0
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (tmp_path / "own" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    before = files(tmp_path)
    answer = run("train", "--resume", "--iterations", 10, "--out", "own")
    assert_one_sentence(
        answer, "the checkpoint in own does not belong to this run, since it was saved by one with other"
    )
    assert files(tmp_path) == before
