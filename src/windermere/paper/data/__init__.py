"""The data sets of the paper: spheres of any dimension, MNIST and CIFAR-10."""

import re
from pathlib import Path

from windermere.errors import UnknownNameError
from windermere.paper.data import cifar10, mnist
from windermere.paper.data.dataset import DataSet, Split
from windermere.paper.data.fetch import Progress, get
from windermere.paper.data.spheres import spheres
from windermere.paper.data.status import DataStatus, status
from windermere.paper.data.storage import data_root

__all__ = [
    "NAMES",
    "DataSet",
    "DataStatus",
    "Progress",
    "Split",
    "data_root",
    "get",
    "load",
    "spheres",
    "status",
]

NAMES = ("sphere2", "sphere3", "sphere10", "sphere900", "mnist", "cifar10")
"""The paper's; besides these there is a sphere<d> for every dimension d, and mnist-patches."""
_READERS = {"mnist": mnist.read, "cifar10": cifar10.read, mnist.PATCHES: mnist.read_patches}


def load(name: str, *, seed: int = 0, root: Path | None = None) -> DataSet:
    """A data set by name. The seed draws the spheres; the images are always the same."""
    if sphere := re.fullmatch(r"sphere([1-9][0-9]*)", name := str(name)):
        return spheres(int(sphere[1]), seed=seed)
    if name not in _READERS:
        raise UnknownNameError("data set", name, ("sphere2", "sphere<d> (of any dimension d)", *_READERS))
    return _READERS[name](data_root(root) / name.partition("-")[0])
