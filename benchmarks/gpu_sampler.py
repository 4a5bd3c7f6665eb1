"""A real sampler on a GPU: flow matching on MNIST, audited by sets at 2 to 100 Euler steps.

`PYTHONPATH=src python3 -m benchmarks.gpu_sampler OUT --seconds 120`; needs MNIST (`windermere data get mnist`). Writes
OUT/image_sampler.json and OUT/image_sampler.png. `--device cpu --seconds 20 --samples 60` is a rehearsal.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import windermere as wm
from benchmarks.image_sampler import SIDE, Features, Velocity, digits, train_features, train_velocity
from windermere.records import environment, write_json
from windermere.report.palette import INK
from windermere.report.style import house_style

STEPS = (2, 4, 8, 16, 32, 100)
SHOWN = 12
"""Digits of a row of the figure."""


def sampler_of(velocity: Velocity, steps: int) -> wm.Sampler:
    return wm.Sampler(velocity, wm.FixedStep.of("euler", steps=steps), order="xt", time="batch")


def audit(sampler: wm.Sampler, noise: Tensor, real: Tensor, features: Features) -> dict[str, Any]:
    """One audit, in numbers."""
    begun = time.perf_counter()
    distance = wm.SetDistance("energy", features=features, name="energy")
    verdict = wm.audit(sampler, noise, data=real, metric=distance, samples=len(noise), evidence=False)
    print(verdict, flush=True)
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "passes": verdict.evaluations,
        "verdict": verdict.to_dict(),
    }


def rows_of(velocity: Velocity, noise: Tensor) -> dict[str, Tensor]:
    """The first digits of each number of steps, from the same noise."""
    solvers = {f"{n} Euler steps": wm.FixedStep.of("euler", steps=n) for n in STEPS}
    solvers["the flow"] = wm.FixedStep.of("rk4", steps=64)
    sampler, rows = sampler_of(velocity, 2), {}
    for name, solver in solvers.items():
        with torch.no_grad(), wm.using(sampler, solver):
            rows[name] = sampler(noise[:SHOWN])[:, 0, 2:-2, 2:-2].clamp(-1, 1).cpu()
    return rows


@house_style
def draw(rows: dict[str, Tensor], path: Path) -> None:
    """A grid of digits: a row a solver, a column a draw of noise."""
    figure = Figure(figsize=(7.2, 0.5 * len(rows)), layout="constrained")
    for ax, (name, images) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        ax.imshow(torch.cat(list(images), dim=1).numpy(), cmap="gray_r", vmin=-1, vmax=1)
        ax.set_ylabel(name, rotation=0, ha="right", va="center", color=INK)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    options.out.mkdir(parents=True, exist_ok=True)
    features = train_features(options.device)
    velocity = train_velocity(options.device, seconds=options.seconds, width=options.width)
    noise = torch.randn(options.samples, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(7)).to(options.device)
    real = digits(options.device, test=True)[0][: 5 * options.samples]
    draw(rows_of(velocity, noise), options.out / "image_sampler.png")
    found: dict[str, Any] = {"environment": environment(options.device), "options": {**vars(options), "out": None}}
    found["audits"] = {}
    for steps in STEPS:
        found["audits"][str(steps)] = audit(sampler_of(velocity, steps), noise, real, features)
        write_json(options.out / "image_sampler.json", found)


if __name__ == "__main__":
    main()
