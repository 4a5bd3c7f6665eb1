"""The command line at its edges: too little memory, pipes and folders in the place of files, Ctrl-C at the start."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, Command, assert_one_sentence, files
from tests.paper.training.small import a_config
from tests.processes import installed_script, surroundings
from windermere.cli.reading import check_device
from windermere.errors import RunError, UsageError
from windermere.paper import demo
from windermere.records import RunFolder, read_metrics

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes, limits and signals of POSIX")
DEEP = "[" * 100_000


@pytest.fixture
def trained(run: Command, tmp_path: Path) -> Path:
    assert run("train", *QUICK, "--out", "run").code == 0
    return tmp_path / "run"


# ---------------------------------------------------------------------------------------------------------
# Memory


def in_little_memory(*arguments: object, folder: Path) -> "subprocess.CompletedProcess[str]":
    """In 12 GiB. The shell sets the limit, since a fork, where Python would, is refused once JAX was used here."""
    limited = ["sh", "-c", f'ulimit -v {12 << 20} && exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "windermere", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings(), cwd=folder)


def test_a_training_that_does_not_fit_into_the_memory_is_one_sentence_and_leaves_no_run(tmp_path: Path) -> None:
    large = ("--data", "sphere2", "--solver", "rk4", "--steps", 1000, "--seeds", 500, "--batch-size", 2000)
    answer = in_little_memory("train", *large, "--out", "run", folder=tmp_path)
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()[-1:]
    assert "Traceback" not in answer.stderr
    assert line.startswith("error: this does not fit into the memory (")
    assert "bytes more were asked for): take fewer --seeds at once, a smaller --batch-size" in line
    assert list(tmp_path.iterdir()) == []


def test_nor_does_one_in_a_folder_that_was_empty(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes. Error code 12"
        )

    (tmp_path / "run").mkdir()
    monkeypatch.setattr("windermere.paper.training.iteration.classify_and_differentiate", fail)
    assert_one_sentence(run("train", *QUICK, "--out", "run"), r"this does not fit into the memory \(8000 bytes more")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_had_begun_when_the_memory_was_full_is_kept(tmp_path: Path) -> None:
    begun = RunFolder.create(tmp_path / "run", {}, {})
    begun.log({"iteration": 1})
    with pytest.raises(MemoryError), begun:
        raise MemoryError
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == '{"iteration": 1}\n'


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes. Error code 12"),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0"),
    ],
    ids=["python", "cpu", "gpu"],
)
@pytest.mark.parametrize("command", ["evaluate", "audit"])
def test_memory_that_is_full_is_one_sentence_in_every_command(
    run: Command,
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    command: str,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(f"windermere.cli.{command}.{command}", fail)
    assert_one_sentence(run(command, trained), r"this does not fit into the memory.*: (take|look at) fewer --s")


@pytest.mark.parametrize("command", ["evaluate", "audit"])
def test_a_device_that_is_lost_is_one_sentence(
    run: Command, trained: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`")

    monkeypatch.setattr(f"windermere.cli.{command}.{command}", fail)
    sentence = r"the device failed \(CUDA: an illegal memory access was encountered\): try again, or with --device cpu"
    assert_one_sentence(run(command, trained), sentence)


def test_a_device_that_is_lost_while_training_says_how_to_go_on(
    run: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    before = (trained / "checkpoint.safetensors").read_bytes()
    monkeypatch.setattr("windermere.paper.training.iteration.classify_and_differentiate", fail)
    answer = run("train", "--resume", "--iterations", 12, "--out", trained)
    words = r"the device 'cpu' failed after iteration 6 \(CUDA: unspecified launch failure\); the last checkpoint is"
    assert_one_sentence(answer, words, "go on from there with --resume, in a new process")
    assert (trained / "checkpoint.safetensors").read_bytes() == before


def test_another_runtime_error_is_not_taken_for_a_lack_of_memory(
    run: Command,
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("windermere.cli.evaluate.evaluate", fail)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        run("evaluate", trained)


# ---------------------------------------------------------------------------------------------------------
# What lies in a run's folder


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint.safetensors", "metrics.jsonl"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_lies_in_the_place_of_a_runs_file_is_told_before_the_first_iteration(
    run: Command,
    trained: Path,
    name: str,
    make: Callable[[Path], None],
) -> None:
    (trained / name).unlink()
    make(trained / name)
    before = files(trained)
    answer = run("train", "--resume", "--iterations", 1000, "--out", trained)
    assert_one_sentence(answer, rf"{name} could not be .*because a (folder|pipe) of that name")
    assert answer.err.count("\n") == 1  # no line of progress
    assert files(trained) == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "environment.json"])
def test_a_pipe_in_the_place_of_a_file_is_told_and_not_waited_for(run: Command, trained: Path, name: str) -> None:
    (trained / name).unlink()
    os.mkfifo(trained / name)
    assert_one_sentence(run("evaluate", trained), "because it is a pipe or a device|is not a run")


def test_a_pipe_in_the_place_of_a_data_file_is_told_and_not_waited_for(run: Command, tmp_path: Path) -> None:
    mnist = tmp_path / "datasets" / "mnist"
    mnist.mkdir(parents=True)
    for name in ("train-images", "t10k-images"):
        os.mkfifo(mnist / f"{name}-idx3-ubyte")
    for name in ("train-labels", "t10k-labels"):
        os.mkfifo(mnist / f"{name}-idx1-ubyte")
    answer = run("train", "--data", "mnist", *EULER, "--out", "run")
    assert_one_sentence(answer, "ubyte could not be read, because it is a pipe or a device, not a file")
    assert_one_sentence(run("data", "get", "mnist", "--from", mnist), "because it is a pipe or a device")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("config.json", ("evaluate",)),
        ("environment.json", ("train", "--resume", "--out")),
        ("study.json", ("study", "draw", "sphere2-fixed", "--out")),
    ],
    ids=["config", "environment", "study"],
)
def test_brackets_without_end_are_a_damaged_file(
    run: Command,
    trained: Path,
    name: str,
    command: tuple[str, ...],
) -> None:
    """Python's parser gives up on them with a RecursionError."""
    (trained / name).write_text(DEEP)
    assert_one_sentence(run(*command, trained), rf"{name} is damaged \(maximum recursion depth")


def test_brackets_without_end_are_a_damaged_row(trained: Path) -> None:
    (trained / "metrics.jsonl").write_text(f"{DEEP}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged \(line 1: maximum recursion depth"):
        read_metrics(trained)


@pytest.mark.parametrize(
    ("lost", "flags", "words"),
    [
        ("metrics.jsonl", ("--lr", 3), "was started with --lr"),
        ("lock", ("--lr", 3), "was started with --lr"),
        ("metrics.jsonl", (), r"metrics\.jsonl is damaged \(it has 0 bytes"),
        ("checkpoint.safetensors", (), r"has a trained model, but no checkpoint\.safetensors"),
    ],
)
def test_a_run_that_may_not_be_resumed_is_left_as_it_was_to_the_byte(
    run: Command,
    trained: Path,
    lost: str,
    flags: tuple[object, ...],
    words: str,
) -> None:
    (trained / lost).unlink()
    if lost != "lock":
        (trained / "lock").write_text("1\n")  # of a process that is gone
    before = files(trained)
    assert_one_sentence(run("train", "--resume", *flags, "--out", trained), words)
    assert files(trained) == before


# ---------------------------------------------------------------------------------------------------------
# Arguments


@pytest.mark.parametrize("number", ["5e-324", "1e-200"])
def test_a_threshold_may_be_as_small_as_numbers_are(run: Command, trained: Path, number: str) -> None:
    answer = run("audit", trained, "--threshold", number, "--samples", 20)
    assert (answer.code, "Traceback" in answer.err) == (11, False)
    assert "UNDECIDED" in answer.out


@pytest.mark.parametrize("name", ["cpu:1", "cpu:7", "cuda:99", "hpu", "privateuseone", "xla", "CPU", "0"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^there is no device '{name}' here \(.*\): use --device cpu$"):
        check_device(name)


def test_the_cpu_has_two_names() -> None:
    assert [check_device(name) for name in (None, "cpu", "cpu:0")] == ["cpu", "cpu", "cpu:0"]


def test_a_demo_takes_no_folder_that_holds_a_run_or_other_files(
    run: Command,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "configs", lambda: {"a": a_config(iterations=3)})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    before = files(tmp_path)
    for folder, name in ((trained, "checkpoint.safetensors"), (tmp_path / "mine", "thesis.tex")):
        assert_one_sentence(run("demo", "--out", folder), rf"{folder} holds other files \({name}, ...\): choose a new")
    assert files(tmp_path) == before
    assert [run("demo", "--out", "demo").code for _ in range(2)] == [0, 0]  # its own folder it takes again


# ---------------------------------------------------------------------------------------------------------
# Ctrl-C while it starts

WAIT_INSIDE_AN_IMPORT = """
import os, sys
os.write(2, b"importing\\n")
while True:  # until the signal comes
    os.read(0, 1)
"""


@pytest.mark.parametrize(
    ("module", "command"), [("typer", ["--version"]), ("torch", ["study", "list"]), ("matplotlib", ["study", "list"])]
)
@pytest.mark.parametrize("way", ["-m", "script"])
def test_ctrl_c_during_the_imports_ends_the_program_at_once_with_code_130(
    tmp_path: Path, module: str, command: list[str], way: str
) -> None:
    """An import that never ends stands for a long one. PyTorch and matplotlib are imported when a command begins."""
    (tmp_path / f"{module}.py").write_text(WAIT_INSIDE_AN_IMPORT)
    script = installed_script(tmp_path / "bin")
    started = ["-X", "utf8", "-m", "windermere"] if way == "-m" else [str(script)]
    environment = surroundings()
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    with subprocess.Popen(
        [sys.executable, *started, *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "importing\n"
            process.send_signal(signal.SIGINT)
            told = process.stderr.read()
            assert (process.wait(), told) == (130, "")
        finally:
            process.kill()


def test_a_library_that_is_imported_leaves_ctrl_c_to_its_user(tmp_path: Path) -> None:
    (tmp_path / "safetensors.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    environment = surroundings()
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    code = "try:\n    from windermere import audit\nexcept KeyboardInterrupt:\n    print('mine')"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (answer.returncode, answer.stdout) == (0, "mine\n")
