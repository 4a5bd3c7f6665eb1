"""Figures on disk."""

import struct
from pathlib import Path

from matplotlib.image import imread

from windermere.report import style


def size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, as a PNG's header has them, after reading all of it."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert imread(path).shape == (height, width, 4)
    return width, height


def inches(path: Path) -> tuple[float, float]:
    """Width and height in inches, however coarse pictures are."""
    width, height = size(path)
    return width / style.DPI, height / style.DPI
