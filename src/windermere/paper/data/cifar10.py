"""CIFAR-10 from its binary batches: a record is a label, then 1024 red, green and blue bytes, row by row."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from windermere.paper.data.catalogue import CIFAR10
from windermere.paper.data.dataset import DataSet, Split
from windermere.paper.data.storage import damaged, locate, read_content

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
CLASSES = 10
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"


def read(folder: Path) -> DataSet:
    """All of CIFAR-10; inputs are [n, 3, 32, 32] in [0, 1]."""
    paths = locate(CIFAR10, folder)
    train, test = _split([paths[name] for name in TRAIN]), _split([paths[TEST]])
    return DataSet(name=CIFAR10.name, train=train, test=test, classes=CLASSES)


def _split(paths: list[Path]) -> Split:
    batches = [read_batch(path) for path in paths]
    _check_equal_lengths(paths, batches)
    inputs = np.empty((sum(map(len, batches)), *SHAPE), dtype=np.float32)
    # Straight into place, batch by batch: the training images alone take 614 MB, and once is enough.
    for part, batch in zip(np.split(inputs, len(batches)), batches, strict=True):
        np.divide(batch[:, 1:].reshape(-1, *SHAPE), np.float32(255), out=part)
    labels = np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64)
    return Split(inputs=torch.from_numpy(inputs), labels=torch.from_numpy(labels))


def read_batch(path: Path) -> NDArray[np.uint8]:
    """[n, 3073]: a label and its pixels in each row."""
    content = read_content(path, CIFAR10.name)
    if not content or len(content) % RECORD:
        what = f"is truncated or corrupted: {len(content)} bytes are no whole number of {RECORD}-byte records"
        raise damaged(path, what, CIFAR10.name)
    batch = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    if batch[:, 0].max() >= CLASSES:
        raise damaged(path, f"is corrupted: it has a label {batch[:, 0].max()}", CIFAR10.name)
    return batch


def _check_equal_lengths(paths: list[Path], batches: list[NDArray[np.uint8]]) -> None:
    """The published batches are equally long: this notices a file that was cut between two records."""
    shortest = min(range(len(batches)), key=lambda i: len(batches[i]))
    longest = max(map(len, batches))
    if len(batches[shortest]) < longest:
        what = f"is truncated: it has {len(batches[shortest])} images, another batch has {longest}"
        raise damaged(paths[shortest], what, CIFAR10.name)
