"""What cannot be trained is told in one sentence, before anything is written."""

from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, SPHERES, Command, assert_one_sentence, files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*SPHERES, "--solver", "euler", "--steps", 2, "--step", 0.5), "exactly one of .* but got --steps and --step"),
        ((*SPHERES, "--solver", "dopri54", "--step", 1, "--tolerance", 0.1), "but got --step and --tolerance"),
        ((*SPHERES, "--solver", "euler"), "exactly one of --steps and --step, but got none"),
        ((*SPHERES, "--solver", "dopri54"), "exactly one of --steps, --step and --tolerance, but got none"),
        ((*SPHERES, "--steps", 2), "--steps needs a method: add --solver"),
        ((*SPHERES, "--step", 0.5), "--step needs a method"),
        ((*SPHERES, "--tolerance", 0.1), "--tolerance needs a method"),
        ((*SPHERES, "--control", "batch"), "--control needs a method"),
        ((*SPHERES, *EULER, "--control", "sample"), "--control .* goes with --tolerance only"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 0.1, "--control", "bacth"), "did you mean 'batch'"),
        ((*SPHERES, "--solver", "euler", "--tolerance", 0.1), "euler.*error"),
        ((*SPHERES, "--solver", "eulre", "--steps", 2), "there is no method 'eulre': did you mean 'euler'"),
        ((*SPHERES, "--solver", "euler", "--steps", 0), "a whole number of steps, at least 1, not 0"),
        ((*SPHERES, "--solver", "euler", "--step", -1), "the step must be positive and finite, not -1"),
        ((*SPHERES, "--solver", "euler", "--step", 0), "the step must be positive and finite, not 0"),
        ((*SPHERES, "--solver", "euler", "--step", "nan"), "the step must be positive and finite, not nan"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 0), "the tolerance must be positive and finite, not 0"),
        (("--data", "sphree2", *EULER), "there is no data set 'sphree2': did you mean 'sphere2'"),
        (("--data", "sphere0", *EULER), "there is no data set 'sphere0'"),
        (("--data", "sphere", *EULER), r"did you mean 'sphere2'\? known are .*sphere<d> \(of any dimension d\)"),
        (EULER, "a new run needs --data"),
        (SPHERES, "a new run needs --solver"),
        ((), "a new run needs --data"),
        ((*SPHERES, *EULER, "--optimizer", "adma"), "there is no optimizer 'adma': did you mean 'adam'"),
        ((*SPHERES, *EULER, "--gradient", "back"), "there is no gradient 'back': did you mean 'backprop'"),
        ((*SPHERES, *EULER, "--dtype", "double"), "there is no dtype 'double'"),
        ((*SPHERES, *EULER, "--adapt", "yes"), "there is no way to adapt 'yes': known are none, paper, steady"),
        ((*SPHERES, *EULER, "--arithmetic", "bf16"), "there is no arithmetic 'bf16': did you mean 'bfloat16'"),
        ((*SPHERES, *EULER, "--arithmetic", "tf32"), "tf32 is for images .*, and the data are 'sphere2': leave it out"),
        (("--data", "mnist", *EULER, "--arithmetic", "tf32", "--dtype", "float64"), "not of float64: leave one of the"),
        ((*SPHERES, *EULER, "--device", "banana"), "there is no device 'banana' here .*: use --device cpu"),
        ((*SPHERES, *EULER, "--device", ""), "there is no device '' here .*: use --device cpu"),
        ((*SPHERES, *EULER, "--device", "meta"), "there is no device 'meta' here"),
        ((*SPHERES, *EULER, "--device", "cuda:77"), "there is no device 'cuda:77' here"),
        ((*SPHERES, *EULER, "--seeds", "some"), "--seeds takes a number .* or a list like 3,7,8 .*, not 'some'"),
        ((*SPHERES, *EULER, "--seeds", "-2"), "--seeds takes a number"),
        ((*SPHERES, *EULER, "--seeds", "0"), "--seeds takes a number .*, not '0'"),
        ((*SPHERES, *EULER, "--seeds", "10000"), "--seeds takes a number up to 9999"),
        ((*SPHERES, *EULER, "--seeds", "3,3"), "--seeds must be one or more different numbers"),
        ((*SPHERES, *EULER, "--seeds", "99999999999999999999,1"), r"different numbers from 0 to 2\*\*63 - 1"),
        ((*SPHERES, *EULER, "--time-limit", "soon"), "--time-limit takes seconds, minutes or hours .*, not 'soon'"),
        ((*SPHERES, *EULER, "--time-limit", "5d"), "--time-limit takes seconds"),
        ((*SPHERES, *EULER, "--iterations", 0), "--iterations must be a whole number, at least 1, not 0"),
        ((*SPHERES, *EULER, "--log-every", -1), "--log-every must be a whole number, at least 1"),
        ((*SPHERES, *EULER, "--batch-size", 2001), "a batch of 2001 cannot be drawn from 2000 .*: take at most 2000"),
        (("--data", "sphere99999999", *EULER), "99999999 dimensions would fill the memory: take at most 100000"),
        ((*SPHERES, *EULER, "--lr", "inf"), "the learning rate must be positive and finite, not inf"),
        ((*SPHERES, *EULER, "--data-seed", -1), "--data-seed must be a whole number from 0"),
        ((*SPHERES, "--solver", "euler", "--step", 1e-9), "1e.09 steps .* are too many with .*: take a larger step"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 1e-12), "float32 cannot resolve .*1e-12.*loosen"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 1e-20, "--dtype", "float64"), "float64 cannot resolve"),
        (("--data", "mnist", *EULER, "--data-seed", 1), "draws the points of spheres, and the data are 'mnist'"),
        (("--data", "mnist", *EULER), "datasets/mnist has no .*: run `windermere data get mnist`, or `.* --from FOLD"),
        (("--data", "cifar10", *EULER), "datasets/cifar10 has no .*: run `windermere data get cifar10`"),
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_training_is_one_sentence_and_writes_nothing(
    run: Command, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    assert_one_sentence(run("train", "--out", tmp_path / "run", *arguments), words)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_or_other_files_is_refused_and_left_as_it_is(run: Command, tmp_path: Path) -> None:
    assert run("train", *QUICK, "--out", "run").code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    before = files(tmp_path)
    assert_one_sentence(
        run("train", *QUICK, "--out", "run"),
        "run already holds a run: go on with --resume or choose another folder as --out$",
    )
    assert_one_sentence(
        run("train", *QUICK, "--out", "mine"), r"mine holds other files \(thesis\.tex, \.\.\.\): .* folder as --out$"
    )
    assert_one_sentence(run("train", "--resume", "--out", "mine"), "mine is not a run: name a folder")
    assert_one_sentence(run("train", "--resume", "--out", "nowhere"), "nowhere does not exist: name a folder")
    assert files(tmp_path) == before
