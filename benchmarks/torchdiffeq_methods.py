"""Sphere2 trained with two methods as the torchdiffeq of the paper's time had them: the paper's settings, five seeds.

Its `rk4` is the 3/8 rule, which is our `rk4_38`. Its `fehlberg2` takes the third stage of a step for the first one of
the next, as if it were the field at the step's end; it is the field at the embedded solution. We have no such method,
so it is written out here, with our choice of steps. Its `dopri5` has a benchmark of its own, `torchdiffeq_dopri5.py`.

    python -m benchmarks.torchdiffeq_methods [NAME ...]      # trains what is missing, and writes the results

Shapes: S seeds, B samples, d = 2 coordinates.
"""

import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import windermere as wm
from benchmarks.measuring import RESULTS
from benchmarks.old_dopri5 import Field
from benchmarks.trained import trained as by_the_library
from windermere.paper import data
from windermere.paper.training import Ensemble, RunConfig, evaluate, paper_settings
from windermere.paper.training.batches import Batches
from windermere.paper.training.trainer import make_ensemble
from windermere.records import environment, read_json, write_json
from windermere.solvers import final_state
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY

SEEDS = (0, 1, 2, 3, 4)
FILE = RESULTS / "torchdiffeq_methods.json"
FLOW = wm.FixedStep.of("rk4", steps=512)
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
LONG = 1024.0
RUNS = [
    *(f"rk4_38 {steps}" for steps in RK4_38),
    *(f"fehlberg2 {tolerance:g}" for tolerance in FEHLBERG2),
]


def field_of(ensemble: Ensemble, inputs: Tensor) -> Field:
    """The sphere network of all seeds, by one long Euler step in C, which is several times as fast as PyTorch: its
    length, a power of two, keeps the state that is added from taking digits of the field."""
    stacked, _ = ensemble.first_solve(inputs)
    solvers = [wm.FixedStep("euler", step=LONG)] * len(inputs)
    return lambda z: (torch.as_tensor(final_state(stacked, z, solvers, (0.0, LONG))) - z) / LONG


def logits(ensemble: Ensemble, flow: Flow, inputs: Tensor) -> Tensor:
    """[S, B, 2]: of inputs [S, B, d]."""
    ends, weight, bias = (
        flow(field_of(ensemble, inputs), inputs),
        ensemble.tensors["2.weight"],
        ensemble.tensors["2.bias"],
    )
    return torch.baddbmm(bias[:, None], ends, weight.transpose(1, 2))


def trained(flow: Flow, config: RunConfig) -> Ensemble:
    sets = data.load(config.data, seed=config.data_seed)
    ensemble, batches = make_ensemble(config), Batches(len(sets.train.labels), config.batch_size, config.seeds, "cpu")
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=config.lr)
    for iteration in range(config.iterations):
        chosen = batches.indices(iteration)
        optimizer.zero_grad()
        loss_of(ensemble, flow, sets.train.inputs[chosen], sets.train.labels[chosen]).backward()
        optimizer.step()
    return ensemble


def loss_of(ensemble: Ensemble, flow: Flow, inputs: Tensor, labels: Tensor) -> Tensor:
    """The sum over seeds, of which each knows its own loss alone."""
    found = logits(ensemble, flow, inputs)
    return F.cross_entropy(found.flatten(0, 1), labels.flatten()) * len(inputs)


def run(name: str) -> dict[str, Any]:
    method, precision = name.split()
    made, begun = environment("cpu"), process_time()
    if method == "rk4_38":
        config = config_of(wm.FixedStep.of(method, steps=int(precision)))
        own, flow = scores(by_the_library(config), config, None)
    else:
        solve, config = fehlberg2(float(precision)), config_of(wm.FixedStep("rk4", step=1.0))
        own, flow = scores(trained(solve, config), config, solve)
    return {"own": own, "flow": flow, "seconds": round(process_time() - begun, 1), "environment": made}


def config_of(solver: wm.FixedStep | wm.Adaptive, **settings: Any) -> RunConfig:
    values = {**paper_settings("sphere2", solver), "seeds": SEEDS, **settings}
    return RunConfig(data="sphere2", solver=solver, **values)


def scores(ensemble: Ensemble, config: RunConfig, solve: Flow | None) -> tuple[list[float], list[float]]:
    """Accuracies on the test set: with what it was trained with (the config's solver, unless there is another), and
    under the flow."""
    inputs, labels = data.load(config.data, seed=config.data_seed).test
    flow = evaluate(ensemble, [FLOW] * len(config.seeds), (inputs, labels)).accuracy
    if solve is None:
        return evaluate(ensemble, [config.solver] * len(config.seeds), (inputs, labels)).accuracy, flow
    with torch.no_grad():
        right = logits(ensemble, solve, inputs.expand(len(config.seeds), -1, -1)).argmax(dim=2) == labels
    return right.double().mean(dim=1).tolist(), flow


def main(names: Sequence[str]) -> None:
    kept = read_json(FILE)["runs"] if FILE.exists() else {}
    for name in names or [name for name in RUNS if name not in kept]:
        kept[name] = run(name)
        print(name, kept[name], flush=True)
        write_json(FILE, {"runs": kept, "seeds": SEEDS})


if __name__ == "__main__":
    main(sys.argv[1:])
