"""`windermere train --adapt`: from no choice of precision to a run with its figure, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.test_cli import EULER, QUICK, SPHERES, Command, assert_one_sentence, run  # noqa: F401
from windermere.records import read_metrics

ADAPTED: tuple[object, ...] = (*SPHERES, "--adapt", "paper", "--iterations", 100)


@pytest.mark.parametrize("method", ["euler", "fehlberg21"])
def test_an_adapted_run_needs_no_precision_and_draws_its_figure(run: Command, tmp_path: Path, method: str) -> None:  # noqa: F811
    answer = run("train", "--out", "run", *ADAPTED, "--solver", method, "--seeds", 2)
    assert answer.code == 0, answer
    assert answer.out.splitlines()[-2:] == ["results are in run", "figure: run/adaptation.png"]
    assert (tmp_path / "run" / "adaptation.png").read_bytes().startswith(b"\x89PNG")
    decisions = [(row["seed"], row["iteration"]) for row in read_metrics(tmp_path / "run") if "before" in row]
    assert decisions == [(0, 50), (1, 50), (0, 100), (1, 100)]


def test_with_json_the_figure_is_drawn_silently(run: Command, tmp_path: Path) -> None:  # noqa: F811
    answer = run("train", "--out", "run", *ADAPTED, "--solver", "euler", "--json")
    assert answer.code == 0, answer
    assert json.loads(answer.out)["finished"] is True
    assert (tmp_path / "run" / "adaptation.png").exists()


def test_without_a_review_there_is_no_figure(run: Command, tmp_path: Path) -> None:  # noqa: F811
    for folder, flags in (("short", (*QUICK, "--adapt", "paper")), ("plain", QUICK)):
        answer = run("train", "--out", folder, *flags)
        assert answer.code == 0, answer
        assert "figure" not in answer.out
        assert not (tmp_path / folder / "adaptation.png").exists()


def test_a_check_without_adaptation_is_refused(run: Command, tmp_path: Path) -> None:  # noqa: F811
    answer = run("train", "--out", "run", *SPHERES, *EULER, "--check", "midpoint")
    assert_one_sentence(answer, "check solver", "add --adapt paper")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_adaptation_is_refused(run: Command, tmp_path: Path) -> None:  # noqa: F811
    answer = run("train", "--out", "run", *SPHERES, *EULER, "--adapt", "steadily")
    assert_one_sentence(answer, "adapt", "'?steadily'?", "paper")
    assert list(tmp_path.iterdir()) == []
