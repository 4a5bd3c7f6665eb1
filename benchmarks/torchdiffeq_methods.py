"""Sphere2 trained with two methods as the torchdiffeq of the paper's time had them: settings of the paper, five seeds.

Its `rk4` is the 3/8 rule, which is our `rk4_38`. Its `fehlberg2` takes the third stage of a step for the first one of
the next, as if it were the field at the step's end; it is the field at the embedded solution. We have no such method,
so it is written out here, with our choice of steps.

    python -m benchmarks.torchdiffeq_methods [NAME ...]      # trains what is missing, and writes the results

Shapes: S seeds, B samples, d = 2 coordinates, w = 32 channels.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import windermere as wm
from benchmarks.measuring import RESULTS
from windermere.paper import data
from windermere.paper.training import (
    Ensemble,
    RunConfig,
    StopSign,
    evaluate,
    open_run,
    paper_settings,
    train,
    trained_ensemble,
)
from windermere.paper.training.batches import Batches
from windermere.paper.training.trainer import make_ensemble
from windermere.records import environment, read_json, write_json
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY

SEEDS = (0, 1, 2, 3, 4)
FILE = RESULTS / "torchdiffeq_methods.json"
FLOW = wm.FixedStep.of("rk4", steps=512)
Field = Callable[[Tensor], Tensor]
Flow = Callable[[Field, Tensor], Tensor]


def fehlberg2(tolerance: float) -> Flow:
    """A whole adaptive solve of states [S, B, d] over a time of 1, each seed with steps of its own."""

    def rms(values: Tensor) -> Tensor:
        return values.square().mean(dim=(1, 2)).sqrt()

    def solve(field: Field, z: Tensor) -> Tensor:
        k, t = field(z), torch.zeros(len(z))
        step = _first_step(field, z, k, tolerance, rms)
        while (active := t < 1).any():
            h = torch.where(active, torch.minimum(step, 1 - t), torch.zeros(()))
            wide = h[:, None, None]
            middle = field(z + wide / 2 * k)
            last = field(z + wide * (k / 256 + middle * (255 / 256)))
            stepped = z + wide * (k / 512 + middle * (255 / 256) + last / 512)
            with torch.no_grad():
                scale = tolerance * (1 + torch.maximum(z.abs(), stepped.abs()))
                ratio = rms(wide * (k - last) / 512 / scale)
                accept = active & (ratio <= 1)
                factor = (SAFETY / ratio.sqrt()).clamp(max=MOST_GROWTH)
                factor = factor.clamp(min=MOST_SHRINKING).where(ratio >= 1, factor.clamp(min=1.0))
                proposal = h * factor
                step = torch.where(accept, torch.maximum(proposal, step), torch.where(active, proposal, step))
                t = torch.where(accept, torch.where(h >= 1 - t, torch.ones(()), t + h), t)
            took = accept[:, None, None]
            z, k = torch.where(took, stepped, z), torch.where(took, last, k)  # torchdiffeq hands `last` on
        return z

    return solve


@torch.no_grad()
def _first_step(field: Field, z: Tensor, k: Tensor, tolerance: float, rms: Callable[[Tensor], Tensor]) -> Tensor:
    """Hairer's, in units of the tolerance."""
    scale = tolerance * (1 + z.abs())
    d0, d1 = rms(z / scale), rms(k / scale)
    h0 = (0.01 * d0 / d1).clamp(max=1)
    d2 = rms((field(z + h0[:, None, None] * k) - k) / scale) / h0
    return torch.minimum(100 * h0, (0.01 / torch.maximum(d1, d2)).sqrt()).clamp(max=1)


FEHLBERG2 = (1e-1, 1e-2, 1e-3, 1e-4)
RK4_38 = (1, 2, 4, 8)
RUNS = [*(f"rk4_38 {steps}" for steps in RK4_38), *(f"fehlberg2 {tolerance:g}" for tolerance in FEHLBERG2)]


def field_of(ensemble: Ensemble) -> Field:
    """The sphere network of all seeds on two points, its convolution written out as a product."""
    w1, b1, w2, b2, w3, b3 = (ensemble.tensors[f"0.field.{name}"] for name in _names())
    left, centre, right = w2.transpose(1, 2).unbind(dim=3)  # each [S, w in, w out]
    mix = torch.cat([torch.cat([centre, left], dim=2), torch.cat([right, centre], dim=2)], dim=1)
    lift, shift, lower = w1[:, None, None, :, 0, 0], b1[:, None, None, :], w3[:, None, 0, :, 0, None]

    def field(z: Tensor) -> Tensor:
        hidden = F.relu(z[..., None] * lift + shift).flatten(2)
        mixed = F.relu(torch.baddbmm(b2.repeat(1, 2)[:, None], hidden, mix))
        return torch.matmul(mixed.unflatten(2, (2, -1)), lower).squeeze(-1) + b3[:, None]

    return field


def _names() -> list[str]:
    return [f"{layer}.{part}" for layer in ("lift", "mix", "lower") for part in ("weight", "bias")]


def logits(ensemble: Ensemble, flow: Flow, inputs: Tensor) -> Tensor:
    """[S, B, 2]: of inputs [S, B, d]."""
    ends, weight, bias = flow(field_of(ensemble), inputs), ensemble.tensors["2.weight"], ensemble.tensors["2.bias"]
    return torch.baddbmm(bias[:, None], ends, weight.transpose(1, 2))


def trained(flow: Flow, iterations: int, config: RunConfig) -> Ensemble:
    sets = data.load(config.data, seed=config.data_seed)
    ensemble, batches = make_ensemble(config), Batches(len(sets.train.labels), config.batch_size, config.seeds, "cpu")
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=config.lr)
    for iteration in range(iterations):
        chosen = batches.indices(iteration)
        found = logits(ensemble, flow, sets.train.inputs[chosen])
        loss = F.cross_entropy(found.flatten(0, 1), sets.train.labels[chosen].flatten())
        optimizer.zero_grad()
        (loss * len(config.seeds)).backward()  # the sum over seeds, of which each knows its own loss alone
        optimizer.step()
    return ensemble


def run(name: str) -> dict[str, Any]:
    method, precision = name.split()
    made, begun = environment("cpu"), process_time()
    own, flow = _by_the_library(int(precision)) if method == "rk4_38" else _written_out(fehlberg2(float(precision)))
    return {"own": own, "flow": flow, "seconds": round(process_time() - begun, 1), "environment": made}


def _config(solver: wm.FixedStep) -> RunConfig:
    return RunConfig(data="sphere2", solver=solver, **{**paper_settings("sphere2", solver), "seeds": SEEDS})


def _by_the_library(steps: int) -> tuple[list[float], list[float]]:
    config = _config(wm.FixedStep.of("rk4_38", steps=steps))
    sets = data.load(config.data, seed=config.data_seed)
    with TemporaryDirectory() as folder, open_run(Path(folder) / "run", config) as opened:
        train(config, sets.train, sets.test, opened, sign=StopSign(), report=lambda _: None)
        ensemble = trained_ensemble(Path(folder) / "run").ensemble
    own, flow = (evaluate(ensemble, [solver] * len(SEEDS), sets.test).accuracy for solver in (config.solver, FLOW))
    return own, flow


def _written_out(flow: Flow) -> tuple[list[float], list[float]]:
    config = _config(wm.FixedStep("rk4", step=1.0))
    ensemble, (inputs, labels) = (
        trained(flow, config.iterations, config),
        data.load(config.data, seed=config.data_seed).test,
    )
    with torch.no_grad():
        right = logits(ensemble, flow, inputs.expand(len(SEEDS), -1, -1)).argmax(dim=2) == labels
    return right.double().mean(dim=1).tolist(), evaluate(ensemble, [FLOW] * len(SEEDS), (inputs, labels)).accuracy


def main(names: Sequence[str]) -> None:
    kept = read_json(FILE)["runs"] if FILE.exists() else {}
    for name in names or [name for name in RUNS if name not in kept]:
        kept[name] = run(name)
        print(name, kept[name], flush=True)
        write_json(FILE, {"runs": kept, "seeds": SEEDS})


if __name__ == "__main__":
    main(sys.argv[1:])
