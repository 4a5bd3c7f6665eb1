"""The real MNIST and CIFAR-10, where they are on this machine."""

from pathlib import Path

import pytest
import torch

from windermere.paper.data import DataSet, DataStatus, data_root, get, load, status

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]

pytestmark = pytest.mark.real_data


def real_status(name: str) -> DataStatus:
    (record,) = (record for record in status() if record.name == name)
    if record.missing:
        pytest.skip(f"{record.folder} has no {record.missing[0]}: run `windermere data get {name}`")
    return record


def real(name: str) -> DataSet:
    real_status(name)
    return load(name)


def test_mnist_has_its_published_shapes_range_and_class_counts() -> None:
    data = real("mnist")
    for split, counts in ((data.train, MNIST_TRAIN), (data.test, MNIST_TEST)):
        assert split.inputs.shape == (sum(counts), 1, 28, 28)
        assert (float(split.inputs.min()), float(split.inputs.max())) == (0.0, 1.0)
        assert split.labels.bincount().tolist() == counts
    assert data.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_mnist_has_its_published_mean_and_spread() -> None:
    """0.1307 and 0.3081, as in every recipe for it."""
    inputs = real("mnist").train.inputs
    assert (round(float(inputs.mean()), 4), round(float(inputs.std()), 4)) == (0.1307, 0.3081)


def test_cifar10_has_its_published_shapes_range_and_class_counts() -> None:
    data = real("cifar10")
    for split, count in ((data.train, 5000), (data.test, 1000)):
        assert split.inputs.shape == (10 * count, 3, 32, 32)
        assert (float(split.inputs.min()), float(split.inputs.max())) == (0.0, 1.0)
        assert split.labels.bincount().tolist() == [count] * 10
    assert data.train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    assert data.test.labels[:5].tolist() == [3, 8, 8, 0, 6]
    means = data.train.inputs.mean(dim=(0, 2, 3))
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]), atol=5e-5, rtol=0)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_real_files_have_the_published_checksums(name: str) -> None:
    assert real_status(name).complete


def test_the_real_mnist_can_be_taken_from_its_folder(tmp_path: Path) -> None:
    expected = real("mnist")
    paths = get("mnist", root=tmp_path, source=data_root() / "mnist")
    assert all(path.parent == tmp_path / "mnist" for path in paths)
    assert torch.equal(load("mnist", root=tmp_path).test.inputs, expected.test.inputs)
