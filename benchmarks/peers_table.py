"""docs/speed.md, drawn from benchmarks/results/: peers*.json, own_field.json, memory.json and gpu_*.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_table import gpu_sections
from benchmarks.measuring import RESULTS
from windermere.records import read_json

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
COLUMNS = ("windermere", "torchdiffeq, Conv1d", "torchdiffeq", "torchode", "diffrax", "lax.scan")


HEAD = """# Speed

`python -m benchmarks.peers table` writes this page from the measurements in `benchmarks/results/`. `make bench`
measures again on a CPU, `make bench-gpu` on a GPU.

## How it works

A small Neural ODE takes many small steps one after the other. Most of its time is overhead, not arithmetic. How much of
it Windermere can save depends on the field:

- **The paper's sphere networks on a CPU**: a whole solve is one call of C code, with fixed steps, with adaptive steps
  and for the adjoint. The machine's own C compiler compiles it when it is first needed, and the result is kept in
  `~/.cache/windermere/native`, or in `windermere/native` under `XDG_CACHE_HOME`. It is loaded only if it is whole and
  if no other user can have written it: where others may write on the way there, each process compiles for itself. This
  code multiplies no matrices: each tap of a convolution is a piecewise linear function of one coordinate, so the code
  looks it up in a table of segments. The result is exact. Without a compiler, or if it takes more than two minutes,
  PyTorch operations do the same work. Each of these is told in a line of the log (the logger `windermere`). With
  `WINDERMERE_NATIVE=0`, PyTorch operations do the work without a word. While such networks train, PyTorch's own
  operations take one thread: they are so small that several threads would wait for one another, above all on a busy
  machine.
- **Your own field on a CPU**: its operations are watched once, at the first solve, and made into a program of a few
  operations on rows, which C code follows at every later solve, there and back. What a field may be made of: linear
  layers and products with matrices, the usual activations (GELU, SiLU, Mish and sines too), sums, products, quotients
  and powers, slices and concatenations of columns, the time in any place, and derivatives that the field takes itself
  (exact traces of flows, Hamiltonians). The state is [samples, units], or a tuple of such tensors, in float32 or
  float64; steps are fixed or adaptive, states at times in between are landed on or interpolated, and gradients are
  those of `backprop`, `checkpoint` and `adjoint`. The program is checked against the field, gradients included, before
  it is used, and it is used again only as long as nothing has changed that the field depends on (modes, attributes,
  closures, hooks; the numbers in its tensors are read each time). A field that does more than compute (hooks,
  counters, random numbers, `print`), that reads numbers (`float(t)`), mixes samples or is not understood goes through
  PyTorch step by step, as do large networks (more than 512 units, or 16 million products for a batch), where little is
  lost to overhead. With control by sample, times of each sample's own included, the way there and `backprop` are in C;
  `checkpoint` and the adjoint's way back go step by step. The logger `windermere` says why, at level debug. `with
  wm.fast_paths(False):` turns all of this off.
- **The sphere networks on a GPU**: a whole solve is one Triton kernel, and its gradient is another one. With fixed
  steps, the training step is captured once as a CUDA graph and replayed.
- **The paper's image networks on a GPU**: with `--arithmetic bfloat16`, on Hopper and later, fused kernels evaluate the
  field and keep its hidden channels on chip. Otherwise the steps are compiled by PyTorch, captured and replayed.
- **Your own field on a GPU**: the same program, found and checked in the same way, is followed by one kernel, whole
  solves with dense output inside, and its gradient by another (`backprop`, `checkpoint` and `adjoint`). It is an
  interpreter in CUDA C, so that no field has to be compiled: NVRTC, which PyTorch brings along, compiles it when it is
  first needed, and the result is kept beside the C code's. It does so in a process apart: until it is done, some three
  seconds, solves are captured or go step by step, so that last bits may change then. A block of threads has a few
  samples, with all their values and all weights on chip; with adaptive steps, all blocks wait for each other at each
  step and take the same decision.
  Where it does not fit (networks of more than about 16,000 weights), and for control by sample, ensembles and fixed
  steps with an adjoint, the steps are captured.
- **Any other field on a GPU**: from the second solve of its kind on, a *step* is captured as a CUDA graph, there and
  back, and replayed. Number, time and size of the step lie on the device, so that another number of steps or another
  tolerance needs no new capture; an adaptive step decides on the device whether it is accepted. The way back computes
  a step again from its state, several steps beside each other, and what the parameters get beside the rest. A field
  is captured only if two watched calls show that it can be replayed: it computes with tensors only, all of them found
  among its parameters, buffers, attributes and closures, and changes nothing. A fingerprint of all that it depends on
  is compared at every solve. Whatever reads numbers, draws some, counts its calls, has hooks or is not understood
  goes step by step (the logger `windermere` says why). `captured=True` asks for a capture at once, and is an error
  that says why where there is none; `captured=False` does without.
- **Anything else** goes through PyTorch step by step, as with torchdiffeq.
"""
OWN_FIELD = """
## A field of your own

Milliseconds of a forward and backward pass, float32, one CPU core; medians of 20 rounds in turns; diffrax and
`lax.scan` in their fastest forms, compiled beforehand (`taskset -c 1 python -m benchmarks own_field`, commit
`{commit}` on an {machine}: processor time, a tenth more or less from one measurement to the next). *Time MLP* is
`net(cat([z, t]))` with 2-64-64-2 units and tanh, batch 128; *latent* 20-100-100-20 with ELU, batch 50, its states
interpolated at 100 times; *flow* the time MLP with the exact trace of its Jacobian, by autograd inside the field,
batch 512.

{table}
"""
MEMORY = """
## Memory

Peak memory of a training step of the CIFAR-10 network, {steps} Euler steps, batch {batch}, on a CPU
(`python -m benchmarks memory`). `checkpoint` keeps the states and computes the rest again. It returns the same gradient
as `backprop`.

| gradient | MiB |
|---|---|
{rows}
"""
PEERS = """
## Sphere2 beside other libraries

Milliseconds of a training step (forward, backward, Adam) of the paper's Sphere2 model, batch 128, float32. These are
medians; the libraries take turns; compilation is not counted. In brackets: how many times Windermere's time.

Every library runs in its fastest form: with `nn.Conv1d` as users write it, or with the small dense matrices that
Windermere makes of it; members (models with seeds of their own) one after the other, stacked or vmapped; and with each
adjoint and step controller of diffrax. *torchdiffeq, Conv1d* is torchdiffeq as users write it. A dash means that the
library has no such method, or that it was not measured. torchode controls the error of each sample, the others that of
the batch.

For one model with 2 steps `lax.scan` is ahead, on one core by a tenth. There, nearly all of Windermere's time is spent
around the solve.
"""
SECTION = """
### {title}

{machine}, commit `{commit}`; {libraries}.

{table}

The fastest forms, and how long JAX takes to compile them:

{compiled}

{agreement}{busy}

An audit of 1000 points of a Sphere2 model trained with 64 Euler steps takes {seconds:.1f} s, the cost of
{passes:.0f} forward passes over these points with the training solver.
"""


def write_page(measured: Sequence[Mapping[str, Any]]) -> None:
    peers = PEERS + "".join(_section(results) for results in measured)
    PAGE.write_text(HEAD + _own_field() + _memory() + peers + gpu_sections(RESULTS))


def _own_field() -> str:
    results = read_json(RESULTS / "own_field.json")
    where, seconds = results["environment"], results["seconds"]
    columns = list(dict.fromkeys(name for found in seconds.values() for name in found))
    lines = ["| field and work | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for case, found in seconds.items():
        cells = (f"{1e3 * found[name]:.2f}" if name in found else "–" for name in columns)
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return OWN_FIELD.format(machine=where["device_name"], commit=str(where["commit"])[:7], table="\n".join(lines))


def _memory() -> str:
    results = read_json(RESULTS / "memory.json")
    rows = (f"| `{gradient}` | {size / 2**20:.0f} |" for gradient, size in results["peak_bytes"].items())
    return MEMORY.format(steps=results["steps"], batch=results["batch"], rows="\n".join(rows))


def _section(results: Mapping[str, Any]) -> str:
    where, works = results["environment"], results["works"]
    versions = {"torch": where["torch"], **results["versions"]}
    head = "| work | members | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 2) + "|\n"
    forms = "| work | members | diffrax | | lax.scan | |\n|---|---|---|---|---|---|\n"
    busy = max(row["busy_cores_of_others"] for row in works)
    return SECTION.format(
        title="One core, processor time" if where["threads"] == 1 else f"{where['threads']} cores",
        machine=where["device_name"],
        commit=str(where["commit"])[:7],
        libraries=", ".join(f"{name} {version}" for name, version in versions.items()),
        table=head + "\n".join(_row(row) for row in works),
        compiled=forms + "\n".join(_compiled(row) for row in works),
        agreement=_agreement(works),
        busy=f" Other processes used up to {busy:.1f} cores when the measurements began." if busy > 0.05 else "",
        **results["audit"],
    )


def _row(row: Mapping[str, Any]) -> str:
    seconds = dict(row["seconds"])
    seconds.setdefault("torchdiffeq, Conv1d", seconds.get("torchdiffeq"))
    ours = seconds["windermere"]
    cells = [f"{1000 * ours:.2f}"]
    for name in COLUMNS[1:]:
        value = seconds.get(name)
        cells.append("–" if value is None else f"{1000 * value:.2f} ({value / ours:.2f}x)")
    return f"| {row['work']} | {row['members']} | " + " | ".join(cells) + " |"


def _compiled(row: Mapping[str, Any]) -> str:
    cells = []
    for name in ("diffrax", "lax.scan"):
        known = name in row["forms"]
        cells += [row["forms"][name], f"{row['compile_seconds'][name]:.1f} s"] if known else ["–", ""]
    return f"| {row['work']} | {row['members']} | " + " | ".join(cells) + " |"


def _agreement(rows: Any) -> str:
    fixed, adaptive = (
        [d for row in rows if ("tolerance" in row["work"]) is wanted for d in row["differences"].values()]
        for wanted in (False, True)
    )
    (loss, gradient), (loose, its_gradient) = (
        [max(d[k] for d in found) for k in (0, 1)] for found in (fixed, adaptive)
    )
    return (
        f"All agree in loss and gradient. With fixed steps they differ by at most {loss:.1g} and {gradient:.1g}\n"
        "(relative, largest entry); "
        f"with adaptive steps, which each library chooses for itself, by at most {loose:.1g} and {its_gradient:.1g}."
    )
