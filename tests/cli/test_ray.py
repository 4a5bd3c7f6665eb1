"""`--ray`: how it is read, and what is refused, without Ray."""

from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, SPHERES, Command, assert_one_sentence, files
from tests.paper.cluster.pools import PoolHere, opened
from tests.paper.studies.small import SMALL, TABLE
from windermere.cli import elsewhere
from windermere.cli.options import _with_address
from windermere.paper.cluster import pool
from windermere.paper.studies import registry
from windermere.paper.training import load_run


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small study; and Ray is there, whether or not it is."""
    monkeypatch.setitem(registry.STUDIES, "small", SMALL)
    monkeypatch.setattr(pool, "find_spec", lambda name: name)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The addresses of pools that are opened, all of them in this process."""
    found: list[str | None] = []

    def open_pool(address: str | None) -> object:
        found.append(address)
        return opened(PoolHere())

    monkeypatch.setattr(elsewhere, "open_pool", open_pool)
    return found


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("--ray", "--ray="),
        ("--ray NAME", "--ray= NAME"),
        ("--ray --quick NAME", "--ray= --quick NAME"),
        ("--ray auto", "--ray auto"),
        ("--ray head:6379 NAME", "--ray head:6379 NAME"),
        ("--ray=head:6379", "--ray=head:6379"),
        ("NAME --out a", "NAME --out a"),
    ],
)
def test_the_flag_may_stand_alone_and_takes_what_looks_like_an_address(typed: str, read: str) -> None:
    assert list(_with_address(typed.split())) == read.split()


def test_a_study_is_run_by_a_pool(run: Command, addresses: list[str | None]) -> None:
    answer = run("study", "run", "--ray", "small", "--seeds", "2", "--quick")
    assert answer.code == 0, answer.err
    assert addresses == [None]
    assert len(TABLE.read(Path("runs/quick/small"))) == 4
    assert "euler-16 on here" in answer.err


def test_what_to_go_on_with_names_ray(run: Command, addresses: list[str | None]) -> None:
    answer = run("study", "run", "small", "--ray", "head:6379", "--seeds", "2", "--time-limit", "0")
    assert answer.code == 0
    assert answer.err.splitlines()[-1].endswith(
        "windermere study run small --out results/small --seeds 2 --ray head:6379"
    )
    assert addresses == ["head:6379"]


def test_a_study_that_is_done_opens_no_pool(run: Command, addresses: list[str | None]) -> None:
    run("study", "run", "small", "--seeds", "1", "--quick")
    assert run("study", "run", "small", "--seeds", "1", "--quick", "--ray").code == 0
    assert addresses == []


def test_a_run_is_trained_by_a_pool_and_resumed_without(run: Command, addresses: list[str | None]) -> None:
    answer = run("train", *QUICK, "--out", "a", "--ray")
    assert answer.code == 0, answer.err
    assert "a is trained on here" in answer.err
    assert load_run("a") is not None
    assert run("train", "--out", "a", "--resume", "--iterations", "8").code == 0
    assert addresses == [None]


def test_a_folder_that_holds_a_run_is_refused_as_without_ray(run: Command, addresses: list[str | None]) -> None:
    run("train", *QUICK, "--out", "a")
    before = files(Path("a"))
    assert_one_sentence(run("train", *QUICK, "--out", "a", "--ray"), "a already holds a run")
    assert files(Path("a")) == before


def test_without_ray_one_sentence_says_how_to_get_it(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "find_spec", lambda name: None)
    answer = run("study", "run", "small", "--ray")
    assert_one_sentence(answer, "Ray is not there", r"pip install 'windermere-ode\[ray\]'")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpu-share", 0.5), "--gpu-share .* add --ray, or leave it out"),
        (("--ray", "--gpu-share", 0), "--gpu-share takes a share"),
        (("--ray", "--device", "cuda:1"), "Ray chooses which GPU"),
        (("--ray=ray://head:1",), "submit it as a job"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(run: Command, flags: tuple[object, ...], words: str) -> None:
    assert_one_sentence(run("train", *SPHERES, *EULER, "--out", "a", *flags), words)
    assert_one_sentence(run("study", "run", "small", *flags), words)
    assert not files(Path())


def test_a_study_that_trains_nothing_refuses_it(run: Command) -> None:
    assert_one_sentence(run("study", "run", "sphere2-data", "--ray"), "--ray is for studies that train models")


@pytest.mark.parametrize(
    "command", [("train", *SPHERES, *EULER, "--out", "a"), ("study", "run", "small", "--out", "a")]
)
def test_a_gpu_that_is_nowhere_is_refused_before_any_run_is_begun(
    run: Command, addresses: list[str | None], command: tuple[str, ...]
) -> None:
    answer = run(*command, "--device", "cuda", "--ray")
    assert_one_sentence(answer, "there is no GPU")
    assert not [path for path in files(Path()) if "config" in path]
