"""Data sets by name, and the folder they lie in."""

from pathlib import Path

import pytest
import torch

from windermere.errors import DataError, UnknownNameError, UsageError
from windermere.paper.data import NAMES, DataSet, Split, data_root, load, spheres

from .small import cifar_contents, mnist_contents, write


@pytest.mark.parametrize("dimension", [1, 2, 7, 900])
def test_a_sphere_is_loaded_by_its_dimension_and_seed(dimension: int) -> None:
    data = load(f"sphere{dimension}", seed=4)
    assert data.name == f"sphere{dimension}"
    assert data.classes == 2
    assert torch.equal(data.test.inputs, spheres(dimension, seed=4).test.inputs)


def test_images_are_loaded_from_the_root_given(tmp_path: Path) -> None:
    write(tmp_path / "mnist", mnist_contents())
    write(tmp_path / "cifar10", cifar_contents())
    assert load("mnist", root=tmp_path).train.inputs.shape == (6, 1, 28, 28)
    assert load("cifar10", root=tmp_path).train.inputs.shape == (15, 3, 32, 32)


@pytest.mark.parametrize("name", ["sphere", "sphere0", "sphere02", "sphere-1", "sphere2 ", "minst", ""])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"there is no data set .*known are .*mnist.*sphere<d>"):
        load(name)


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        load("minst")


def test_every_listed_name_is_known(tmp_path: Path) -> None:
    for name in NAMES:
        if name.startswith("sphere"):
            load(name)
        else:
            with pytest.raises(DataError, match=f"windermere data get {name}"):
                load(name, root=tmp_path)


def test_the_root_is_the_argument_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("WINDERMERE_DATA", "~/sets")
    assert data_root(Path("/elsewhere")) == Path("/elsewhere")
    assert data_root() == Path("/home/someone/sets")
    cache = Path("/home/someone/.cache/windermere/datasets")
    monkeypatch.setenv("WINDERMERE_DATA", "")
    assert data_root() == cache
    monkeypatch.delenv("WINDERMERE_DATA")
    assert data_root() == cache


def test_load_honours_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "mnist", mnist_contents())
    monkeypatch.setenv("WINDERMERE_DATA", str(tmp_path))
    assert len(load("mnist").train.labels) == 6


def test_a_split_holds_float32_inputs_with_one_int64_label_each() -> None:
    good = Split(inputs=torch.zeros(3, 2), labels=torch.zeros(3, dtype=torch.int64))
    assert DataSet(name="zeros", train=good, test=good, classes=1).train is good
    inputs, labels = good
    assert inputs is good.inputs
    assert labels is good.labels
    with pytest.raises(UsageError, match=r"float32 inputs .* not torch.float64"):
        Split(inputs=torch.zeros(3, 2).double(), labels=good.labels)
    with pytest.raises(UsageError, match=r"not torch.float32 and torch.int32"):
        Split(inputs=good.inputs, labels=good.labels.int())
    with pytest.raises(UsageError, match=r"one label per input, not labels of shape \(2,\)"):
        Split(inputs=good.inputs, labels=good.labels[:2])
