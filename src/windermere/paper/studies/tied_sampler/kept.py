"""The samples that are kept to be drawn.

Shapes: n samples; images [n, 1, side, side] with values between -1 and 1.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windermere.paper.studies.rows import Tables
from windermere.paper.studies.tied_sampler.rows import DIGITS, SAMPLES, DigitRow, SampleRow

POINTS_KEPT, DIGITS_KEPT = 400, 12


def kept(run: str, seed: int, made: Mapping[str, Tensor]) -> Tables:
    """Some of the samples by their stages, all from the same noise."""
    if next(iter(made.values())).ndim == 2:
        return Tables({SAMPLES: _points(run, seed, made)})
    return Tables({DIGITS: _digits(run, seed, made)})


def _points(run: str, seed: int, made: Mapping[str, Tensor]) -> list[SampleRow]:
    columns = {
        f"{name}_{axis}": samples[:POINTS_KEPT, k].tolist()
        for name, samples in made.items()
        for k, axis in enumerate("xy")
    }
    every = zip(*columns.values(), strict=True)
    return [SampleRow(run=run, seed=seed, **{k: round(x, 3) for k, x in zip(columns, xs, strict=True)}) for xs in every]


def _digits(run: str, seed: int, made: Mapping[str, Tensor]) -> list[DigitRow]:
    return [
        DigitRow(run=run, seed=seed, stage=stage, sample=k, side=image.shape[-1], pixels=as_text(image))
        for stage, samples in made.items()
        for k, image in enumerate(samples[:DIGITS_KEPT])
    ]


def as_text(image: Tensor) -> str:
    shades = ((image.clamp(-1, 1) + 1) * 127.5).round().byte().flatten()
    return bytes(shades.tolist()).hex()


def images_of(rows: Sequence[DigitRow]) -> NDArray[np.float64]:
    """[n, side, side], from 0 to 1."""
    shades = np.array([list(bytes.fromhex(row.pixels)) for row in rows], dtype=np.float64)
    return shades.reshape(len(rows), rows[0].side, rows[0].side) / 255
