"""Fields of one's own: forward and backward pass, on one core.

A network of the state and the time (2-64-64-2, tanh, batch 128) with Euler steps, with dopri5 and by the adjoint; a
latent ODE (20-100-100-20, ELU, batch 50) at 100 times; and a continuous normalising flow, with the exact trace by
autograd inside the field (batch 512). Windermere solves them in C, and beside that step by step through PyTorch; beside
it torchdiffeq, and with JAX diffrax and a hand-written `lax.scan`, each in its fastest form.
"""

import time
from collections.abc import Callable, Iterator, Mapping

import torch

from benchmarks.measuring import Bar, keep, show, side_by_side
from benchmarks.users_fields import CNF, JOBS, Job, ours, theirs
from benchmarks.users_fields_jax import jax_contenders

OURS, SLOW = "Windermere", "Windermere, step by step"
CASES: Mapping[str, Job] = {
    "time MLP, 64 Euler steps": JOBS["time MLP, Euler 64"],
    "time MLP, dopri5 at 1e-5": JOBS["time MLP, dopri5 1e-5"],
    "time MLP, dopri5 at 1e-5, adjoint": JOBS["time MLP, dopri5 1e-5, adjoint"],
    "latent, dopri5 at 1e-3, 100 times": JOBS["latent, 100 times"],
    "flow, dopri5 at 1e-5, adjoint": JOBS["CNF, dopri5 1e-5, adjoint"],
}
MOST, MOST_OF_FLOW = 1.0, 0.55
"""What Windermere may take of the time of the fastest in JAX; and of torchdiffeq's, where JAX is not asked."""


def contenders(job: Job) -> Iterator[tuple[str, Callable[[], object]]]:
    """Names, some of them more than once, and passes."""
    yield OURS, ours(job, "cpu")
    yield SLOW, ours(job, "cpu", fast=False)
    yield "torchdiffeq", theirs(job, "cpu")
    if job.field is not CNF:
        yield from jax_contenders(job)


def measure(job: Job, rounds: int) -> dict[str, float]:
    """Seconds of each library's fastest form."""
    found = list(contenders(job))
    trial = side_by_side({str(k): go for k, (_, go) in enumerate(found)}, rounds=3, lead=1, clock=time.process_time)
    best: dict[str, int] = {}
    for k, (name, _) in enumerate(found):
        if name not in best or trial[str(k)] < trial[str(best[name])]:
            best[name] = k
    passes = {name: found[k][1] for name, k in best.items()}
    return side_by_side(passes, rounds=rounds, lead=1, clock=time.process_time)


def run(*, rounds: int = 20) -> list[Bar]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds = {name: measure(job, rounds) for name, job in CASES.items()}
    torch.set_num_threads(threads)
    for name, found in seconds.items():
        show(f"A field of one's own, ms: {name}", {each: f"{1e3 * s:.2f}" for each, s in found.items()})
    keep("own_field", {"seconds": seconds})
    return [_bar(name, found) for name, found in seconds.items()]


def _bar(name: str, found: Mapping[str, float]) -> Bar:
    in_jax = [s for other, s in found.items() if other in ("diffrax", "lax.scan")]
    share, most = found[OURS] / min(in_jax or [found["torchdiffeq"]]), MOST if in_jax else MOST_OF_FLOW
    return Bar(name=f"{name}, beside the fastest", measured=share, limit=most, at_least=False)
