"""The demo, with trainings of a few iterations."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.paper.training.small import a_config, assert_same_run
from tests.pictures import inches
from windermere.errors import RunError, StorageError
from windermere.paper import demo
from windermere.paper.training import Report, RunConfig, StopSign, make_controller
from windermere.solvers import FixedStep


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quick(monkeypatch)


def make_quick(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(demo, "configs", small_configs)
    patch.setattr(demo, "TEST_STEPS", (1, 2, 4))
    patch.setattr("windermere.report.style.DPI", 40)


def small_configs() -> dict[str, RunConfig]:
    coarse = a_config(solver=FixedStep.of("euler", steps=2), iterations=10)
    solver = FixedStep.of("euler", steps=3)
    adapted = replace(coarse, solver=solver, controller=make_controller("steady", solver, every=5))
    return {"coarse": coarse, "adapted": adapted}


class Watched:
    """A progress that writes down whose trainings it was shown."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @contextmanager
    def __call__(self, title: str, iterations: int, precision_name: str) -> Iterator[Callable[[Report], None]]:
        assert (iterations, precision_name) == (10, "step")
        self.titles.append(title)
        yield lambda report: None


def verdicts(result: demo.Demo) -> list[dict[str, Any]]:
    return [entry.verdict.to_dict() for entry in result.entries]


@dataclass(frozen=True)
class Whole:
    """A demo that was left alone."""

    folder: Path
    result: demo.Demo
    titles: list[str]

    def copied_to(self, folder: Path) -> Path:
        return shutil.copytree(self.folder, folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder, watched = tmp_path_factory.mktemp("demo"), Watched()
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        return Whole(folder, demo.run(folder, progress=watched), watched.titles)


BOTH = ["coarse: euler, h = 1/2", "adapted: euler with adapted step"]


def test_the_demo_trains_two_models_and_draws_them_side_by_side(whole: Whole) -> None:
    result = whole.result
    assert whole.titles == BOTH
    solvers = [entry.verdict.own.solver for entry in result.entries]
    assert solvers[0] == "euler, h = 1/2"
    assert solvers[1] != "euler, h = 1/3"
    assert [entry.run for entry in result.entries] == [whole.folder / "coarse", whole.folder / "adapted"]
    assert all(entry.figure.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for entry in result.entries)
    page = result.page.read_text()
    assert len(page.encode()) < 1_000_000
    assert page.count("<article") == 2
    assert "Trained with 2 Euler steps" in page
    assert result.figure == whole.folder / "trajectories.png"
    assert inches(result.figure) == (10, 8.5)


def test_a_second_demo_takes_the_models_of_the_first(whole: Whole, tmp_path: Path) -> None:
    watched = Watched()
    assert verdicts(demo.run(whole.copied_to(tmp_path / "demo"), progress=watched)) == verdicts(whole.result)
    assert watched.titles == []


def test_an_interrupted_demo_goes_on_where_it_was(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(demo, "stop_sign", lambda: nullcontext(StopSign(reason="interrupted")))
        with pytest.raises(RunError, match="the demo was interrupted: run it again to go on from iteration 1"):
            demo.run(tmp_path / "pieces", progress=Watched())
    assert not (tmp_path / "pieces" / "trajectories.png").exists()
    watched = Watched()
    result = demo.run(tmp_path / "pieces", progress=watched)
    assert watched.titles == BOTH
    assert verdicts(result) == verdicts(whole.result)
    for name in ("coarse", "adapted"):
        assert_same_run(tmp_path / "pieces" / name, whole.folder / name)
    assert result.figure.read_bytes() == whole.result.figure.read_bytes()


def test_a_damaged_model_is_made_again_from_its_checkpoint(whole: Whole, tmp_path: Path) -> None:
    folder, watched = whole.copied_to(tmp_path / "demo"), Watched()
    (folder / "adapted" / "model.safetensors").write_bytes(b"")
    assert verdicts(demo.run(folder, progress=watched)) == verdicts(whole.result)
    assert watched.titles == BOTH[1:]


def test_runs_of_a_demo_with_other_settings_are_refused(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = whole.copied_to(tmp_path / "demo")
    others = {**demo.configs(), "coarse": a_config(lr=0.5, iterations=10)}
    monkeypatch.setattr(demo, "configs", lambda: others)
    with pytest.raises(RunError, match=r"was started with lr = 0\.001 \(not 0\.5\)"):
        demo.run(folder, progress=Watched())


def test_the_real_demo_compares_two_euler_steps_with_no_choice_of_step_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    coarse, adapted = demo.configs()["coarse"], demo.configs()["adapted"]
    assert (coarse.data, coarse.solver) == ("sphere2", FixedStep.of("euler", steps=2))
    assert (adapted.adapt, adapted.first_step) == ("steady", "initial")


def test_a_folder_in_the_place_of_the_figure_is_told_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "trajectories.png").mkdir()
    with pytest.raises(StorageError, match="could not be written, because a folder of that name is in its place"):
        demo.run(tmp_path, progress=lambda *_: pytest.fail("it trains"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["trajectories.png"]
