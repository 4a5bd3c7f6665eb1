"""What a training shows: the numbers that matter, and plain lines where there is no terminal."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from windermere.auditing import AuditProgress
from windermere.cli import terminal
from windermere.cli.terminal import audit_progress, describe, download_progress, study_progress, training_progress
from windermere.paper.studies import fan
from windermere.paper.studies.runner import Progress
from windermere.paper.training import Report, StopSign

REPORT = Report(
    iteration=50,
    iterations=1000,
    loss=[0.5, 0.7],
    accuracy=[0.75, 1.0],
    test_accuracy=[0.8, 0.9],
    precision=[1 / 4, 1 / 8],
    evaluations=[4.0, 8.0],
    seconds=2.0,
)


def test_a_report_is_described_by_its_means_over_members() -> None:
    assert describe(REPORT, "step") == "loss 0.6000  acc 0.875  test 0.850  steps 6  evals/it 6.0"


def test_a_shortened_last_step_is_a_step() -> None:
    assert "steps 4 " in describe(replace(REPORT, precision=[0.3, 0.3]), "step")


def test_a_tolerance_is_described_as_one() -> None:
    report = replace(REPORT, precision=[1e-4, 3e-4], evaluations=[26.0, 27.5])
    assert describe(report, "tolerance") == "loss 0.6000  acc 0.875  test 0.850  tol 0.0002  evals/it 26.8"


def test_without_an_evaluation_yet_there_is_a_dash() -> None:
    assert "test -  steps" in describe(replace(REPORT, test_accuracy=None), "step")


def test_off_a_terminal_there_is_a_plain_line_for_every_twentieth_of_the_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with training_progress("sphere2", 1000, "step") as report:
        for iteration in range(10, 1001, 10):
            report(replace(REPORT, iteration=iteration, seconds=iteration / 100))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [
        ["sphere2", f"{n}/1000"] for n in (10, *range(50, 1001, 50))
    ]  # fmt: skip
    assert lines[0] == f"sphere2  10/1000  {describe(REPORT, 'step')}  10 s left"
    assert lines[-1].endswith("0 s left")
    assert not any("\x1b" in line for line in lines)


def test_more_seeds_of_a_studys_run_have_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    with study_progress("small", StopSign()) as report:
        for _ in range(2):
            for iteration in (500, 1000):
                report(Progress("euler-1", "step", replace(REPORT, iteration=iteration), 0.1))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [["euler-1", "500/1000"], ["euler-1", "1000/1000"]] * 2
    assert all(line.endswith("; of the study 10% done") for line in lines)


def test_rounding_leaves_no_time_below_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with study_progress("small", StopSign()) as report:
        for iteration, share in ((500, 0.5), (1000, 1 + 1e-12)):
            report(Progress("euler-1", "step", replace(REPORT, iteration=iteration), share))
    assert capsys.readouterr().err.endswith("of the study 100% done, 0 s left\n")


def test_the_bar_of_a_study_that_trains_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, record=True, file=StringIO())
    monkeypatch.setattr(terminal, "stderr", console)
    with study_progress("fan", StopSign()) as report:
        report(Progress("fan", "", None, 0.5))
    assert " 50% " in console.export_text()


def test_the_fan_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan, "FINEST", -3.5)  # a tenth of all steps
    shares = list[float]()
    fan.compute_fan(True, shares.append)
    assert len(shares) == 9
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_a_line_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress("sphere2 " * 30, 1000, "step") as report:
        report(REPORT)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("width", [80, 200])
def test_on_a_terminal_there_is_a_bar_with_the_numbers(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=width, record=True, file=StringIO())
    monkeypatch.setattr(terminal, "stderr", console)
    with training_progress("coarse: euler, h = 1/2", 10_000, "step") as report:
        report(replace(REPORT, iteration=10_000))
    shown = console.export_text()
    assert "10000/10000 0:00:00" in shown
    assert describe(REPORT, "step") in shown


def test_a_stop_is_acknowledged_before_the_iteration_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, record=True, file=StringIO())
    monkeypatch.setattr(terminal, "stderr", console)
    sign = StopSign()
    with training_progress("cifar10", 7800, "step", sign):
        sign.reason = "interrupted"
    assert "interrupted: stopping after this iteration" in console.export_text()


def test_a_download_off_a_terminal_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with download_progress("mnist") as progress:
        progress(5, 10)
    assert capsys.readouterr().err.strip() == ""


AUDIT = AuditProgress(phase="reference flow", solver="rk4, h = 1/7", batch=1, batches=2, evaluations=34.4)


def test_an_audit_off_a_terminal_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with audit_progress() as report:
        report(AUDIT)
    assert capsys.readouterr().err.strip() == ""


def test_an_audit_on_a_terminal_shows_phase_batch_and_evaluations_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, record=True, file=StringIO())
    monkeypatch.setattr(terminal, "stderr", console)
    with audit_progress() as report:
        report(AUDIT)
    assert "reference flow: rk4, h = 1/7, batch 1 of 2, 34 evaluations a sample 0:00:00" in console.export_text()


def test_an_audit_that_is_interrupted_ends_and_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, file=StringIO())
    monkeypatch.setattr(terminal, "stderr", console)

    def stopped() -> None:
        with audit_progress() as report:
            report(AUDIT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not console._live_stack
