"""Does rounding change what is learned? `PYTHONPATH=src python3 -m benchmarks.arithmetic --out arithmetic.json`.

CIFAR-10 (or `--data mnist`) trained from the same seeds in float32, tf32 and bfloat16 with coarse and with fine Euler
steps; every model is then tested in float32 by its own solver and by rk4 at finer steps. The verdict is the paper's: a
model is tied to its solver where the two accuracies lie more than 0.1 apart. Numbers are written as they come.

Where the data set cannot travel whole: `--cut FOLDER` writes some of it there in parts of about 40 MB, as bytes, and
`--parts FOLDER` reads whatever parts are there. `--tiny` is a rehearsal on the CPU with random images.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

import benchmarks.absent  # noqa: F401  first: it stands in for packages that are missing
from benchmarks.gpu_runs import InMemory
from windermere.nn.arithmetic import ARITHMETICS, convolving_in
from windermere.paper import data as data_sets
from windermere.paper.training import RunConfig, evaluate, make_ensemble, train
from windermere.solvers import FixedStep

Sets: TypeAlias = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
PART, THRESHOLD = 13_000, 0.1


class Kept(InMemory):
    """A run without a disk that keeps the trained parameters."""

    def save_model(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.model = {name: tensor.clone() for name, tensor in tensors.items()}


def whole(name: str) -> Sets:
    loaded = data_sets.load(name)
    return loaded.train, loaded.test


def cut(name: str, folder: Path, train_images: int, test_images: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (inputs, labels), most in zip(("train", "test"), whole(name), (train_images, test_images), strict=True):
        pixels = (inputs[:most] * 255).round().to(torch.uint8).numpy()
        for start in range(0, len(pixels), PART):
            path = folder / f"{kind}-{start // PART}.npz"
            np.savez_compressed(path, x=pixels[start : start + PART], y=labels[start : min(start + PART, most)].numpy())
            print(f"{path}: {path.stat().st_size / 2**20:.0f} MiB")


def from_parts(folder: Path) -> Sets:
    def joined(kind: str) -> tuple[Tensor, Tensor]:
        parts = [np.load(path) for path in sorted(folder.glob(f"{kind}-*.npz"))]
        pixels = torch.from_numpy(np.concatenate([part["x"] for part in parts]))
        return pixels.float() / 255, torch.from_numpy(np.concatenate([part["y"] for part in parts])).long()

    return joined("train"), joined("test")


def random_images(name: str) -> Sets:
    generator, shape = torch.Generator().manual_seed(0), {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}[name]
    pixels, labels = torch.rand(24, *shape, generator=generator), torch.randint(10, (24,), generator=generator)
    return (pixels[:16], labels[:16]), (pixels[16:], labels[16:])


def measured(config: RunConfig, sets: Sets, finer: int) -> dict[str, Any]:
    """One training, and its models in float32 under their own solver and a finer one."""
    run, begun = Kept(), time.perf_counter()
    train(config, *sets, run)  # type: ignore[arg-type]
    seconds = time.perf_counter() - begun
    exact = make_ensemble(RunConfig(**{**vars(config), "arithmetic": "float32"}))
    exact.load(run.model)
    test = tuple(tensor.to(config.device) for tensor in sets[1])
    check = FixedStep.of("rk4", steps=finer)
    with convolving_in("float32", tuned=True):
        own, better = (evaluate(exact, [s] * exact.size, test) for s in (config.solver, check))  # type: ignore[arg-type]
    last = run.rows[-len(config.seeds) :]
    gaps = [a - b for a, b in zip(own.accuracy, better.accuracy, strict=True)]
    return {
        "own solver": own.accuracy,
        "in its own arithmetic": [row["test_accuracy"] for row in last],
        str(check): better.accuracy,
        "gaps": gaps,
        "verdicts": ["tied" if abs(gap) > THRESHOLD else "flow" for gap in gaps],
        "last losses": [row["loss"] for row in last],
        "seconds": seconds,
    }


def told(values: list[float]) -> str:
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("arithmetic.json"))
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--steps", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--arithmetics", nargs="+", default=list(ARITHMETICS), choices=ARITHMETICS)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--finer", type=int, default=32, help="steps of rk4 to test with")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cut", type=Path, help="write parts of the data set there, and nothing else")
    parser.add_argument("--images", type=int, nargs=2, default=[50_000, 10_000], help="of --cut: training and test")
    parser.add_argument("--parts", type=Path, help="read the data set from parts")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the CPU")
    given = parser.parse_args()
    if given.cut is not None:
        cut(given.data, given.cut, *given.images)
        return
    if given.tiny:
        given.device, given.iterations, given.finer, given.steps = "cpu", 2, 2, [1, 2]
    sets = random_images(given.data) if given.tiny else from_parts(given.parts) if given.parts else whole(given.data)
    shared: dict[str, Any] = {"data": given.data, "seeds": tuple(range(given.seeds)), "iterations": given.iterations}
    shared |= {"batch_size": 4 if given.tiny else 256, "optimizer": "adam", "lr": given.lr, "device": given.device}
    shared |= {"evaluate_every": given.iterations, "checkpoint_every": given.iterations}
    result: dict[str, Any] = {"torch": torch.__version__, "images": [len(s[1]) for s in sets], "runs": []}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for steps in given.steps:
        for name in given.arithmetics:
            config = RunConfig(solver=FixedStep.of("euler", steps=steps), arithmetic=name, **shared)
            found = measured(config, sets, given.finer)
            result["runs"].append({"config": {**asdict(config), "solver": str(config.solver)}, **found})
            given.out.write_text(json.dumps(result, indent=1))
            print(
                f"euler {steps:>3}  {name:<9} own {told(found['own solver'])}  gap {told(found['gaps'])}  "
                f"{' '.join(found['verdicts'])}  {found['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
