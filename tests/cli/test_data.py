"""`windermere data`: what it gets, lists and refuses."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cli.commands import EULER, Command, assert_one_sentence
from tests.paper.data.small import NOWHERE, mnist_contents, write
from windermere.paper import data
from windermere.paper.data.catalogue import MNIST


def test_data_that_a_folder_lacks_is_named(run: Command, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    answer = run("data", "get", "mnist", "--from", "downloads")
    assert_one_sentence(answer, "neither downloads nor a folder in it has train-images-idx3-ubyte")
    assert_one_sentence(run("data", "get", "mnist", "--from", "nowhere"), "nowhere is not a folder")


def test_an_archive_in_the_data_folder_is_answered_with_the_command_that_unpacks_it(run: Command) -> None:
    folder = write(Path("datasets/cifar10").absolute(), {"cifar-10-binary.tar.gz": b"..."})
    words = rf"but cifar-10-binary\.tar\.gz: run `windermere data get cifar10 --from {folder}` to unpack it$"
    assert_one_sentence(run("train", "--data", "cifar10", *EULER, "--out", "run"), words)


def test_a_download_that_fails_is_answered_with_the_flag_for_files_that_are_here(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = replace(MNIST, remotes=tuple(replace(remote, url=NOWHERE) for remote in MNIST.remotes))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(data, "get", partial(data.get, catalogues=[nowhere]))
    assert_one_sentence(run("data", "get", "mnist"), "cannot be reached .* give their folder with --from FOLDER$")


def test_an_imitation_is_not_taken_for_the_data(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "downloads", mnist_contents())
    answer = run("data", "get", "mnist", "--from", "downloads")
    assert_one_sentence(answer, "truncated, corrupted or not the published data: downloads/train-images-idx3-ubyte")


@pytest.mark.parametrize(
    ("name", "words"), [("sphere2", "no files to get"), ("minst", "did you mean 'mnist'"), ("imagenet", "known are")]
)
def test_only_what_has_files_can_be_got(run: Command, name: str, words: str) -> None:
    assert_one_sentence(run("data", "get", name), words)


def test_data_that_was_got_is_listed_with_its_files(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "datasets" / "mnist" / "train-images-idx3-ubyte"]
    monkeypatch.setattr(data, "get", lambda name, source, progress: paths)
    assert json.loads(run("data", "get", "mnist", "--json").out) == {"name": "mnist", "files": [str(paths[0])]}
    answer = run("data", "get", "mnist").out
    assert answer == f"mnist: 1 files, complete and checked, in {tmp_path / 'datasets' / 'mnist'}\n"


def test_the_list_says_what_is_there_in_the_folder_that_the_environment_names(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", {"train-labels-idx1-ubyte": b"not what was published"})
    mnist, cifar10 = json.loads(run("data", "list", "--json").out)
    assert (mnist["name"], mnist["complete"], len(mnist["missing"])) == ("mnist", False, 3)
    assert mnist["folder"] == str(tmp_path / "datasets" / "mnist")
    assert mnist["corrupt"] == [str(tmp_path / "datasets" / "mnist" / "train-labels-idx1-ubyte")]
    assert (cifar10["name"], cifar10["complete"], len(cifar10["missing"])) == ("cifar10", False, 6)
    table = run("data", "list").out
    for word in ("mnist", "cifar10", "missing", "corrupt", "sphere<d>", "computed from a seed"):
        assert word in table
