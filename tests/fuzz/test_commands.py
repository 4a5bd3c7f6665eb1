"""The command line with flags at random: an answer or one sentence, no traceback, and no half-written file."""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.cli.commands import QUICK
from tests.fuzz.commands import a_folder, asked, assert_an_answer, assert_nothing_half_written, written
from tests.fuzz.damage import damaged, otherwise
from tests.fuzz.profiles import examples
from tests.fuzz.strategies import mostly
from tests.fuzz.test_verdicts import saved

WORDS = st.sampled_from(
    [
        "",
        "x",
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e999",
        "1e-320",
        "99999999999999999999",
        "é",
        "--",
        "[red]",
        "a/b",
        "None",
    ]
)
"""What is hardly ever meant."""


def flags(**choices: list[object]) -> SearchStrategy[list[object]]:
    """Some of these flags, mostly with one of their values; None stands for a flag without a value."""
    pairs = {
        f"--{name.replace('_', '-')}": st.just(None) if values == [None] else mostly(st.sampled_from(values), WORDS)
        for name, values in choices.items()
    }
    drawn = st.fixed_dictionaries({}, optional=pairs)
    return drawn.map(
        lambda d: [part for flag, value in d.items() for part in ((flag,) if value is None else (flag, value))]
    )


METHODS: list[object] = ["euler", "midpoint", "rk4", "dopri54", "fehlberg21", "tsit54", "dopri5"]
solver_flags: dict[str, list[object]] = {
    "solver": METHODS,
    "steps": [1, 2, 5],
    "step": [0.5, 1, 0.3, 2],
    "tolerance": [1e-2, 1e-3, 1, 1e-30],
    "control": ["batch", "sample"],
    "device": ["cpu", "cuda", "cpu:1", "meta"],
    "arithmetic": ["float32", "tf32", "bfloat16"],
    "json": [None],
}
train_flags: dict[str, list[object]] = {
    **solver_flags,
    "data": ["sphere2", "sphere3", "sphere1", "sphere0", "mnist"],
    "seeds": [1, 2, "3,7", "5,", "3,3"],
    "adapt": ["steady", "paper", "none"],
    "check": METHODS,
    "threshold": [0.1, 1e-3, 1],
    "target": [0.01, 0.5, 1],
    "gradient": ["backprop", "checkpoint", "adjoint"],
    "lr": [1e-3, 1.0, 1e30, 0],
    "optimizer": ["adam", "sgd"],
    "batch_size": [1, 2, 16, 4000],
    "dtype": ["float32", "float64"],
    "data_seed": [0, 5],
    "log_every": [1, 3],
    "evaluate_every": [2, 100],
    "checkpoint_every": [1, 4],
    "time_limit": ["0s", "1h", "0.0m"],
    "resume": [None],
}
sound: tuple[object, ...] = ("--data", "sphere2", "--solver", "euler", "--steps", 2)


@cache
def a_run() -> Path:
    """A small trained run, with its verdict beside it."""
    folder = Path(mkdtemp()) / "run"
    assert asked("train", *QUICK, "--seeds", 2, "--adapt", "paper", "--check", "midpoint", "--out", folder).code == 0
    return folder


@pytest.fixture(autouse=True, scope="module")
def _folders() -> Iterator[None]:
    yield
    if a_run.cache_info().currsize:
        shutil.rmtree(a_run().parent)


def check(*arguments: object, folder: Path) -> None:
    assert_an_answer(asked(*arguments))
    assert_nothing_half_written(folder)


@examples("commands")
@given(given=flags(**train_flags), begun=mostly(st.just(sound), st.just(())), iterations=mostly(st.just(5), WORDS))
def test_training(given: list[object], begun: tuple[object, ...], iterations: object) -> None:
    """A flag that is given twice has its last value. What one sitting has written, the next one takes or refuses."""
    with a_folder() as folder:
        many = ("--iterations", iterations, "--batch-size", 8)
        check("train", "--out", "run", *many, *begun, *given, folder=folder)
        check("train", "--out", "run", "--resume", folder=folder)


@examples("commands")
@given(given=flags(**train_flags), iterations=st.sampled_from([6, 9, 3]))
def test_going_on_with_a_run(given: list[object], iterations: int) -> None:
    with a_folder() as folder:
        shutil.copytree(a_run(), "run")
        check("train", "--out", "run", "--resume", "--iterations", iterations, *given, folder=folder)


@examples("commands")
@given(given=flags(**solver_flags))
def test_evaluating(given: list[object]) -> None:
    with a_folder() as folder:
        check("evaluate", a_run(), *given, folder=folder)


audit_flags: dict[str, list[object]] = {
    "seed": [0, 1, 5],
    "samples": [1, 20],
    "metric": ["accuracy", "rmse", "mse", "nll", "energy-drift", "r2"],
    "threshold": [0.1, 0.0, 2, 1.5],
    "outputs": ["classes", "numbers"],
    "figure": ["a.png", "a.svg", "none/a.png", "a.txt"],
    "html": ["a.html", "a.htm", "none/a.html"],
    "batch_axis": [0, 1, -1, 7],
    "shared": ["0", "t"],
    "device": ["cpu", "cuda"],
    "verbose": [None],
    "json": [None],
    "no_evidence": [None],
}


@examples("commands")
@given(
    given=flags(**audit_flags),
    what=mostly(st.just("run"), st.one_of(WORDS, st.sampled_from(["os:getcwd", "no.such:f"]))),
)
def test_auditing(given: list[object], what: str) -> None:
    with a_folder() as folder:
        shutil.copytree(a_run(), "run")
        check("audit", what, "--samples", 10, "--seed", 0, *given, folder=folder)


study_flags: dict[str, list[object]] = {
    "quick": [None],
    "seeds": [1, "3,7"],
    "device": ["cuda", "cpu"],
    "time_limit": ["0s"],
    "arithmetic": ["float32", "tf32"],
    "only": ["euler-2*", "none*"],
    "out": ["study"],
}


@examples("commands")
@given(
    given=flags(**study_flags),
    verb=mostly(st.sampled_from(["run", "draw", "merge", "list", "summary"]), WORDS),
    name=mostly(st.sampled_from(["sphere2-fixed", "figure4", "table1", "trajectories"]), WORDS),
)
def test_studies(given: list[object], verb: str, name: str) -> None:
    """Without time to train for; each goes into the folder that it is begun in."""
    with a_folder() as folder:
        limit = ("--quick", "--time-limit", "0s", "--seeds", 1) if verb == "run" else ()
        check("study", verb, *(() if verb in ("list", "summary") else (name,)), *limit, *given, folder=folder)


@examples("commands")
@given(
    name=st.sampled_from(
        ["config.json", "environment.json", "metrics.jsonl", "model.safetensors", "checkpoint.safetensors"]
    ),
    command=st.sampled_from([("evaluate",), ("audit", "--samples", 10), ("train", "--resume", "--out")]),
    seed=st.integers(0, 2**32 - 1),
)
def test_files_of_a_run_that_are_damaged(name: str, command: tuple[object, ...], seed: int) -> None:
    """A command answers or says what is wrong; nothing but what was damaged is damaged then."""
    with a_folder():
        chance = Random(seed)
        shutil.copytree(a_run(), "run")
        path = Path("run", name)
        before = path.read_bytes()
        if path.suffix == ".json" and chance.random() < 0.5:
            path.write_text(json.dumps(otherwise(chance, json.loads(before))))
        else:
            path.write_bytes(damaged(chance, before))
        after = path.read_bytes()
        answer = asked(*command, "run")
        assert_an_answer(answer)
        assert not list(Path("run").glob(".*"))
        if answer.code == 1:
            assert written(Path("run")) == {**written(a_run()), name: after}


@examples("commands")
@given(kind=st.sampled_from(["classes", "movement"]), seed=st.one_of(st.none(), st.integers(0, 2**32 - 1)))
def test_saved_verdicts_that_are_damaged(kind: str, seed: int | None) -> None:
    with a_folder() as folder:
        whole = saved(kind).encode()
        Path("verdict.dat").write_bytes(whole if seed is None else damaged(Random(seed), whole))
        answer = asked("report", "verdict.dat", "--out", "page.html")
        assert_an_answer(answer)
        assert_nothing_half_written(folder)
        assert Path("page.html").exists() == (answer.code == 0)
