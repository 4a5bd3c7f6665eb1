"""MNIST from its idx files: a header of big-endian 32-bit numbers (magic, each dimension), then the bytes.

`read_patches` makes it small enough for a network that one CPU core trains in seconds.
"""

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from windermere.paper.data.catalogue import MNIST
from windermere.paper.data.dataset import DataSet, Split
from windermere.paper.data.storage import damaged, locate, read_content

UNSIGNED_BYTES = 0x08
SIDE = 28
CLASSES = 10
PATCHES = "mnist-patches"
TESTED = 1000
"""So many test images remain in patches."""


def read(folder: Path) -> DataSet:
    """All of MNIST; inputs are [n, 1, 28, 28] in [0, 1]."""
    paths = locate(MNIST, folder)
    return DataSet(name=MNIST.name, train=_split(paths, "train"), test=_split(paths, "t10k"), classes=CLASSES)


def read_patches(folder: Path) -> DataSet:
    """The same images of 14 x 14 pixels, each the mean of four, in patches of 2 x 2: the channels of 7 x 7 places.
    Inputs are [n, 4, 7, 7] in [0, 1]. Of the test set the first thousand."""
    whole = read(folder)
    test = Split(*(part[:TESTED] for part in whole.test))
    return DataSet(name=PATCHES, train=_in_patches(whole.train), test=_in_patches(test), classes=CLASSES)


def _in_patches(split: Split) -> Split:
    return Split(inputs=F.pixel_unshuffle(F.avg_pool2d(split.inputs, 2), 2), labels=split.labels)


def _split(paths: dict[str, Path], part: str) -> Split:
    images_path, labels_path = paths[f"{part}-images-idx3-ubyte"], paths[f"{part}-labels-idx1-ubyte"]
    images, labels = _images(images_path), _labels(labels_path)
    if len(images) != len(labels):
        what = f"has {len(labels)} labels for the {len(images)} images of {images_path.name}"
        raise damaged(labels_path, what, MNIST.name)
    inputs = np.divide(images[:, None], np.float32(255), dtype=np.float32)
    return Split(inputs=torch.from_numpy(inputs), labels=torch.from_numpy(labels.astype(np.int64)))


def _images(path: Path) -> NDArray[np.uint8]:
    images = read_idx(path, dimensions=3)
    if images.shape[1:] != (SIDE, SIDE):
        what = f"has images of {images.shape[1]} x {images.shape[2]} pixels instead of {SIDE} x {SIDE}"
        raise damaged(path, what, MNIST.name)
    return images


def _labels(path: Path) -> NDArray[np.uint8]:
    labels = read_idx(path, dimensions=1)
    if labels.max() >= CLASSES:
        raise damaged(path, f"is corrupted: it has a label {labels.max()}", MNIST.name)
    return labels


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """The array in an idx file of unsigned bytes, gzipped or not."""
    content = read_content(path, MNIST.name)
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise damaged(path, f"is truncated: {len(content)} bytes, its header alone has {header}", MNIST.name)
    magic, *shape = (int(number) for number in np.frombuffer(content, dtype=">u4", count=1 + dimensions))
    if magic != (UNSIGNED_BYTES << 8 | dimensions):
        raise damaged(path, f"is not an idx file of {dimensions} dimensions (magic {magic:#010x})", MNIST.name)
    announced, found = math.prod(shape), len(content) - header
    if found != announced or not found:
        size = " x ".join(map(str, shape))
        what = f"is truncated or corrupted: its header announces {size} bytes and {found} follow"
        raise damaged(path, what, MNIST.name)
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
