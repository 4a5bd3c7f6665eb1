"""`windermere demo`: what it shows, and how it is stopped."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Command
from tests.paper.training.small import (
    a_config,
)
from windermere.paper import demo
from windermere.paper.training import StopSign
from windermere.solvers import FixedStep


def test_the_demo_shows_both_models_and_says_where_its_figure_is(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {name: a_config(solver=FixedStep.of("euler", steps=n), iterations=3) for name, n in (("a", 2), ("b", 4))}
    monkeypatch.setattr(demo, "configs", lambda: small)
    answer = run("demo", "--out", "demo")
    assert answer.code == 0
    assert "euler, h = 1/2" in answer.out
    assert answer.out.startswith("page: demo/index.html\n")
    assert "figure: demo/trajectories.png" in answer.out
    assert answer.out.splitlines()[-1].endswith((tmp_path / "demo" / "index.html").as_uri())
    assert all(f"run: demo/{name}" in answer.out for name in small)
    assert (tmp_path / "demo" / "trajectories.png").exists()


@pytest.mark.parametrize(("reason", "code"), [("interrupted", 130), ("terminated", 143)])
def test_a_demo_that_is_stopped_ends_with_the_code_of_its_signal(
    run: Command, monkeypatch: pytest.MonkeyPatch, reason: Any, code: int
) -> None:
    monkeypatch.setattr(demo, "configs", lambda: {"a": a_config(iterations=3)})
    monkeypatch.setattr(demo, "stop_sign", lambda: nullcontext(StopSign(reason=reason)))
    answer = run("demo", "--out", "demo")
    assert answer.code == code
    assert f"the demo was {reason}: run it again to go on from iteration 1" in answer.err
