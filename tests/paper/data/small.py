"""Tiny files in the published formats, and catalogues that publish them."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from windermere.paper.data.catalogue import Catalogue, DataFile, Remote

CIFAR_NAMES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
NOWHERE = "http://127.0.0.1:9"
"""Port 9 (discard): nothing listens there."""


def random_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress, so that a packed file is as long as its content."""
    return np.random.default_rng(seed).bytes(size)


def pixels(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    return np.array([0x800 + array.ndim, *array.shape], dtype=">u4").tobytes() + array.tobytes()


def mnist_contents(train: int = 6, test: int = 4) -> dict[str, bytes]:
    """A MNIST of few images; label i is i modulo 10."""
    contents = {}
    for part, n in (("train", train), ("t10k", test)):
        contents[f"{part}-images-idx3-ubyte"] = idx(pixels((n, 28, 28), seed=n))
        contents[f"{part}-labels-idx1-ubyte"] = idx(np.arange(n, dtype=np.uint8) % 10)
    return contents


def cifar_batch(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def cifar_contents(n: int = 3) -> dict[str, bytes]:
    """A CIFAR-10 of n images a batch; a batch's labels all say its number."""
    return {
        name: cifar_batch(pixels((n, 3, 32, 32), seed=i), np.full(n, i, dtype=np.uint8))
        for i, name in enumerate(CIFAR_NAMES, start=1)
    }


def write(folder: Path, contents: dict[str, bytes], *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def published(contents: dict[str, bytes]) -> tuple[DataFile, ...]:
    return tuple(DataFile(name=name, digest=md5(content)) for name, content in contents.items())


def remote(url: str, packed: bytes, holds: tuple[str, ...]) -> Remote:
    return Remote(url=url, size=len(packed), digest=md5(packed), holds=holds)


def zipped_catalogue(contents: dict[str, bytes], base: str = NOWHERE) -> Catalogue:
    """Each file gzipped on its own, as MNIST is."""
    remotes = (
        remote(f"{base}/{name}.gz", gzip.compress(content, mtime=0), (name,)) for name, content in contents.items()
    )
    return Catalogue(name="tiny", files=published(contents), remotes=tuple(remotes))


def archive_catalogue(contents: dict[str, bytes], archive: bytes, base: str = NOWHERE) -> Catalogue:
    """All files in one archive, as CIFAR-10 is."""
    return Catalogue(
        name="tiny",
        files=published(contents),
        remotes=(remote(f"{base}/tiny.tar.gz", archive, tuple(contents)),),
        refused=("tiny-python.tar.gz", "tiny-py"),
        refusal="it is pickles: get tiny.tar.gz instead",
    )


def tar(contents: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    """A gzipped archive with the files in a folder, and further members without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in extra:
            archive.addfile(member)
        for name, content in contents.items():
            info = tarfile.TarInfo(f"batches/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
