"""What the published files are: their names, where they lie, and what their bytes sum up to.

A digest is written "algorithm:hexadecimal". A data file's is that of its unpacked content, since gzip can
pack the same bytes in many ways.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a data set, as it lies in the data folder (gzipped, it has `.gz` after its name)."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file on the official server, and the data files that are packed in it."""

    url: str
    size: int
    """In bytes."""
    digest: str
    """The digest of the file as the server sends it."""
    holds: tuple[str, ...]
    """One name for a gzipped file, several for a tar archive."""

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    @property
    def is_archive(self) -> bool:
        return ".tar" in self.name


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All there is to know about a data set that has to be downloaded."""

    name: str
    files: tuple[DataFile, ...]
    remotes: tuple[Remote, ...]
    refused: tuple[str, ...] = ()
    """Files and folders that people have instead of ours and that we do not read."""
    refusal: str = ""
    """Why not, and what to get."""


_MNIST = {
    "train-images-idx3-ubyte": ("6bbc9ace898e44ae57da46a324031adb", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte": ("a25bea736e30d166cdddb491f175f624", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte": ("2646ac647ad5339dbf082846283269ea", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte": ("27ae3e4e09519cfbb04c329615203637", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
}
"""Digest of the content; size and digest of what the server sends."""

MNIST = Catalogue(
    name="mnist",
    files=tuple(DataFile(name=name, digest=f"md5:{digest}") for name, (digest, *_) in _MNIST.items()),
    remotes=tuple(
        Remote(
            url=f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz",
            size=size,
            digest=f"md5:{packed}",
            holds=(name,),
        )
        for name, (_, size, packed) in _MNIST.items()
    ),
)

_CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

CIFAR10 = Catalogue(
    name="cifar10",
    files=tuple(DataFile(name=name, digest=f"sha256:{digest}") for name, digest in _CIFAR10.items()),
    remotes=(
        Remote(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            size=170_052_171,
            digest="md5:c32a1d4ab5d03f1284b67883e8d87530",
            holds=tuple(_CIFAR10),
        ),
    ),
    refused=(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        *(name.removesuffix(".bin") for name in _CIFAR10),
    ),
    refusal="it is CIFAR-10's Python version, whose files are pickles and could run any code when read: "
    "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/ instead",
)

OFFICIAL = (MNIST, CIFAR10)
