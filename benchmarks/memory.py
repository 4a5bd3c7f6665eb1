"""Peak memory of a CIFAR-10 training step at 64 Euler steps: each gradient in a process of its own."""

import resource
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from windermere.paper.architectures import architecture, initialise
from windermere.solvers import GRADIENTS, Gradient

STEPS, BATCH = 64, 32


def peak_bytes(gradient: Gradient) -> int:
    """What the step needs beyond what was there before it."""
    model = architecture("cifar10", wm.FixedStep.of("euler", steps=STEPS), gradient=gradient)
    initialise(model, 0)
    x, y = torch.rand(BATCH, 3, 32, 32), torch.zeros(BATCH, dtype=torch.int64)
    with torch.no_grad(), wm.using(model, wm.FixedStep.of("euler", steps=1)):
        model(x)  # libraries allocate their own room at the first call
    before = _resident()
    F.cross_entropy(model(x), y).backward()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def run() -> list[Bar]:
    peaks = {}
    for gradient in GRADIENTS:
        command = [sys.executable, "-m", "benchmarks.memory", gradient]
        peaks[gradient] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    title = f"CIFAR-10 training step, Euler {STEPS} steps, batch {BATCH}: peak memory"
    show(title, {name: f"{value / 2**20:.0f} MiB" for name, value in peaks.items()})
    keep("memory", {"peak_bytes": peaks, "steps": STEPS, "batch": BATCH})
    share = peaks["checkpoint"] / peaks["backprop"]
    return [Bar(name="checkpoint's peak memory over backprop's", measured=share, limit=1 / 8, at_least=False)]


if __name__ == "__main__":
    print(peak_bytes(sys.argv[1]))  # type: ignore[arg-type]
