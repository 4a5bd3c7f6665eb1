"""Sphere2 trained with torchdiffeq's dopri5 of before August 2020, and with ours: does accuracy decline at small
tolerances with the former? Both with the settings of quick studies (1500 iterations at 1e-3), five seeds. And at the
smallest tolerance the former once more, with steps that are constants to the gradient.

And how much of the gradient came through the steps there: the part of the weights' gradient on a batch that is gone
when steps are held fixed, relative to what is left.

    python -m benchmarks.torchdiffeq_dopri5 [TOLERANCE ...]      # trains what is missing, and writes the results
    python -m benchmarks.torchdiffeq_dopri5 fresh                # the smallest tolerance again, with five other seeds
    python -m benchmarks.torchdiffeq_dopri5 constant             # and with steps that are constants to the gradient
"""

import sys
from collections.abc import Sequence
from time import process_time
from typing import Any

import torch
from torch import Tensor

import windermere as wm
from benchmarks.measuring import RESULTS
from benchmarks.old_dopri5 import old_dopri5
from benchmarks.torchdiffeq_methods import SEEDS, config_of, loss_of, scores, trained
from benchmarks.trained import trained as by_the_library
from windermere.paper import data
from windermere.paper.studies.study import QUICK_SPHERES
from windermere.paper.training import Ensemble
from windermere.paper.training.batches import Batches
from windermere.records import environment, read_json, write_json

FILE = RESULTS / "torchdiffeq_dopri5.json"
TOLERANCES = (1e-5, 1e-3, 1e-4, 1e-2, 1e-6)
"""In the order of what they tell."""


FRESH = (5, 6, 7, 8, 9)


def run(name: str) -> dict[str, Any]:
    made, begun = environment("cpu"), process_time()
    tolerance = min(TOLERANCES) if name in ("fresh", "constant") else float(name)
    seeds = FRESH if name == "fresh" else SEEDS
    config = config_of(wm.Adaptive("dopri54", tolerance=tolerance), **{**QUICK_SPHERES, "seeds": seeds})
    ours = scores(by_the_library(config), config, None)
    solve = old_dopri5(tolerance, through_steps=name != "constant")
    ensemble = trained(solve, config)
    theirs = scores(ensemble, config, solve)
    return {
        "ours": dict(zip(("own", "flow"), ours, strict=True)),
        "theirs": dict(zip(("own", "flow"), theirs, strict=True)),
        "through_steps": through_steps(ensemble, tolerance, seeds),
        "seconds": round(process_time() - begun, 1),
        "environment": made,
    }


def through_steps(ensemble: Ensemble, tolerance: float, seeds: tuple[int, ...]) -> list[float]:
    """By seed."""
    sets = data.load("sphere2", seed=0)
    chosen = Batches(len(sets.train.labels), 128, seeds, "cpu").indices(0)
    whole, fixed = (
        _gradient(ensemble, tolerance, sets.train.inputs[chosen], sets.train.labels[chosen], through_steps=through)
        for through in (True, False)
    )
    return [float(f"{share:.3g}") for share in (whole - fixed).norm(dim=1) / fixed.norm(dim=1)]


def _gradient(ensemble: Ensemble, tolerance: float, inputs: Tensor, labels: Tensor, *, through_steps: bool) -> Tensor:
    """[S, all weights]."""
    loss = loss_of(ensemble, old_dopri5(tolerance, through_steps=through_steps), inputs, labels)
    return torch.cat([part.flatten(1) for part in torch.autograd.grad(loss, ensemble.parameters())], dim=1)


def main(names: Sequence[str]) -> None:
    kept = read_json(FILE)["runs"] if FILE.exists() else {}
    for name in names or [f"{tolerance:g}" for tolerance in TOLERANCES]:
        if name not in kept:
            kept[name] = run(name)
            print(name, kept[name], flush=True)
            write_json(FILE, {"runs": kept, "seeds": SEEDS, "settings": QUICK_SPHERES})


if __name__ == "__main__":
    main(sys.argv[1:])
