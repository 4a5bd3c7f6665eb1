"""The GPU's part of docs/speed.md, drawn from benchmarks/results/gpu_*.json."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from windermere.records import read_json

Found = Mapping[str, Any]
COLUMNS = ("windermere", "torchdiffeq, Conv1d", "torchdiffeq", "diffrax", "lax.scan")
IMAGES = {
    "Windermere, bfloat16 (kernels)": "bfloat16 backprop",
    "Windermere, bfloat16, `checkpoint`": "bfloat16 checkpoint",
    "Windermere, bfloat16, compiled convolutions": "bfloat16 backprop, compiled",
    "Windermere, tf32": "tf32 backprop",
    "Windermere, float32": "float32 backprop",
    "Windermere, float32, without TF32": "float32 backprop, plain",
    "torchdiffeq, bfloat16, compiled field": "torchdiffeq bfloat16, compiled field",
    "torchdiffeq, tf32": "torchdiffeq tf32",
    "torchdiffeq, float32": "torchdiffeq float32",
}
LONG = {"backprop": "kept", "checkpoint": "computed again"}
PEAK = 790.0
"""TFLOP/s of bfloat16 products that the chip gives."""
FLOOR = 2 * 256 * 32**2 * 9 * 128**2 * 3 * 16 / (PEAK * 1e9)
"""Milliseconds of the 3x3 convolutions alone in a CIFAR-10 iteration of 16 steps: there, back, and for the weights."""


def gpu_sections(results: Path) -> str:
    """The sections of what has been measured so far."""
    parts: dict[str, Callable[[Found], str]] = {
        "gpu_fields": _fields,
        "gpu_training": _training,
        "gpu_peers": _peers,
        "gpu_images": _images,
        "gpu_image_kernel": _kernels,
    }
    known = {name: read_json(path) for name in parts if (path := results / f"{name}.json").exists()}
    return "".join(f"\n{parts[name](found)}" for name, found in known.items())


def _made(found: Found) -> str:
    where = found["environment"]
    return f"{where['device_name']}, torch {where['torch']}, commit `{where['commit'][:7]}`"


def _note(found: Found) -> str:
    note = found["environment"].get("note")
    return f" ({note})" if note else ""


def _table(*lines: tuple[str, ...]) -> str:
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest]) + "\n"


FIELDS = ("one kernel", "captured", "step by step", "torchdiffeq", "diffrax", "lax.scan")


def _fields(found: Found) -> str:
    rows = []
    for name, job in found["jobs"].items():
        known = job["ms"]
        rows.append((name, *(f"{known[column]:.1f}" if column in known else "–" for column in FIELDS)))
    kernels = [sum(job["kernels, us"].values()) / 1e3 for job in list(found["jobs"].values())[:3]]
    return (
        f"## One H200: a field of your own\n\n{_made(found)}{_note(found)}. Milliseconds of a forward and backward "
        "pass, medians in turns.\n*CNF* has the exact trace by autograd inside the field; *odenet* is the field of "
        "torchdiffeq's MNIST example, 64x7x7, batch\n128. The other fields are those of the table "
        "above. Products are float32, in JAX too; "
        "PyTorch's convolutions take TF32,\nas is its default (with TF32 diffrax took 11.0 and 19.9 ms for the odenet, "
        "and `lax.scan` 7.7,\non a machine whose host was faster).\n\n"
        f"{_table(('field and work', *(f'Windermere, {name}' for name in FIELDS[:3]), *FIELDS[3:]), *rows)}\n"
        "Where there is no kernel, the solve is captured. NVRTC compiles the kernels once for a machine, a size of "
        "tiles and a\nkind of number, in about 3 s and in a process apart, while solves are captured; those of "
        "captured steps take half a\nsecond, and are tried against PyTorch's operations before they are used. "
        f"{_first_passes(found)}"
        "Of a solve in one kernel most is Python's "
        "work: on the GPU, the time MLP's solves take\n"
        f"{', '.join(f'{ms:.2f}' for ms in kernels)} ms, there and back. `compile=True` made no captured step much "
        "faster when it was last\nmeasured (commit `f5b2094`: 11.0 ms where 9.6 were taken without, 7.5 and 4.5, 8.4 "
        "and 6.2; 14.2 and 15.4 for the odenet).\n"
    )


def _first_passes(found: Found) -> str:
    """How long users wait at first."""
    ways: dict[str, list[float]] = {}
    for job in found["jobs"].values():
        for way, seconds in job["first pass, s"].items():
            ways.setdefault(way, []).append(seconds)
    told = [f"{min(each):.1f} to {max(each):.1f} s {way}" for way, each in ways.items()]
    return (
        "The first pass\nin a new process, with CUDA awake and no kernel compiled before, takes "
        f"{', '.join(told[:-1])} and\n{told[-1]}. The longest by default is the CNF's, with an import that its first "
        "solve does without since (not measured again).\n"
    )


def _training(found: Found) -> str:
    suffix = ", captured"
    rows = [
        (name.removesuffix(suffix), f"{value['ms']:.2f}")
        for name, value in found["times"].items()
        if name.endswith(suffix)
    ]
    figure = found["figure 4"]
    return (
        f"## One H200: Sphere2\n\n{_made(found)}. A whole training iteration of `windermere train` (batch, solve, "
        "loss, Adam), captured as a CUDA graph. Milliseconds:\n\n"
        f"{_table(('work', 'ms'), *rows)}\n"
        f"{_bounded_by(found)}\n\n"
        f"All 85 trainings of the paper's Figure 4 (a) and (b), with metrics, evaluations and checkpoints, take "
        f"{figure['both as runs, s']:.0f} s\n(extrapolated from 2000 of 10,000 iterations for Euler, 1000 for rk4).\n"
        f"{_whole_study(figure)}"
    )


def _whole_study(figure: Found) -> str:
    whole = figure.get("study run")
    if whole is None:
        return ""
    training = " and ".join(f"{seconds} s for {method}" for method, seconds in whole["training, s"].items())
    return (
        f"`windermere study run sphere2-fixed --device cuda` as a whole took {whole['seconds']:.0f} s on a fresh "
        f"machine (commit `{whole['commit']}`).\nTraining, with the compilation of the kernels, took {training}.\n"
    )


def _bounded_by(found: Found) -> str:
    """What a captured iteration's time is spent on."""
    walks = {}
    for name, kernels in found["profile"].items():
        spent = [float(text.split(" us")[0]) for kernel, text in kernels.items() if kernel.startswith("walk_")]
        walks[name] = f"{sum(spent) / 1e3:.2f} ms ({name})"
    return (
        f"Of that, the two kernels of the solve take {' and '.join(walks.values())}: 64 steps forward and 64 back. "
        "Each step waits\nfor the one before it, so latency bounds them, not arithmetic. The rest is about thirty "
        "short kernels."
    )


def _peers(found: Found) -> str:
    best: dict[tuple[str, int], dict[str, float]] = {}
    for row in found["rows"]:
        if "ms" in row:
            written = row["library"] == "torchdiffeq" and row["form"].startswith("Conv1d")
            name = "torchdiffeq, Conv1d" if written else row["library"]
            known = best.setdefault((row["work"], row["members"]), {})
            known[name] = min(row["ms"], known.get(name, float("inf")))
    rows = [(work, str(members), *_cells(known)) for (work, members), known in best.items() if "windermere" in known]
    return (
        f"## One H200: beside others\n\n{_made(found)}, jax {found['jax']}{_note(found)}. "
        "Milliseconds of a Sphere2 training step. In brackets: how many times Windermere's time.\n\n"
        f"{_table(('work', 'members', *COLUMNS), *rows)}"
    )


def _cells(known: Mapping[str, float]) -> Iterator[str]:
    ours = known["windermere"]
    yield f"{ours:.2f}"
    for name in COLUMNS[1:]:
        yield "–" if name not in known else f"{known[name]:.2f} ({known[name] / ours:.1f}x)"


def _images(found: Found) -> str:
    rows = []
    for label, key in IMAGES.items():
        cells = []
        for data in ("cifar10", "mnist"):
            parts = ("euler 16", "three products", "euler 16 torchdiffeq")
            section = {name: cell for part in parts for name, cell in found.get(f"{data} {part}", {}).items()}
            cells.append(_ms(section.get(key, {})))
        if set(cells) != {"–"}:
            rows.append((label, *cells))
    long = found.get("cifar10 euler 64", {})
    memory = [
        (told, _ms(long[kind]), f"{long[kind]['peak MiB'] * 1.048576 / 1000:.2f}", _fits(long, kind))
        for kind, told in LONG.items()
        if "ms" in long.get(kind, {})
    ]
    return (
        f"## One H200: images\n\n{_made(found)}{_note(found)}. Milliseconds of a training iteration "
        "with 16 Euler steps, batch 256:\n\n"
        f"{_table(('', 'CIFAR-10', 'MNIST'), *rows)}\n"
        f"The 3x3 convolutions of CIFAR-10 alone would take {FLOOR:.1f} ms at the {PEAK:.0f} TFLOP/s that the chip "
        "gives. The kernels never write\nhidden layers to memory, except one byte and one bit for each value of the "
        "second layer."
        f"{_three(found)}\n\nCIFAR-10 with 64 steps in bfloat16. Memory includes the whole data set (0.6 GB). "
        "The last column is the largest power of two:\n\n"
        f"{_table(('hidden layers', 'ms', 'GB', 'steps that fit'), *memory)}"
    )


def _three(found: Found) -> str:
    """What three products of TF32 bring."""
    known = found.get("cifar10 three products", {})
    if not known:
        return ""
    rows = [
        (gradient, _ms(known[f"float32 {gradient}"]), _ms(known[f"float32 {gradient}, plain"]))
        for gradient in ("backprop", "checkpoint")
    ]
    return (
        "\n\nIn float32 the 3x3 convolutions are three products of TF32 each ([arithmetic](runs.md#arithmetic)), "
        f"beside one in\nfloat32, side by side (commit `{known['commit']}`); three are at best three times as much as "
        f"TF32's one:\n\n{_table(('CIFAR-10, float32', 'three products', 'one in float32'), *rows)}"
    )


def _ms(cell: Found) -> str:
    return f"{cell['ms']:.1f}" if "ms" in cell else "–"


def _fits(long: Found, kind: str) -> str:
    return str(long.get(f"{kind}, steps that fit", {}).get("largest power of two (extrapolated)", "–"))


def _kernels(found: Found) -> str:
    rows = []
    for name, cell in found["default"].items():
        data, kernel = name.split(": ")
        speed = f"{cell['tflops']:.0f}" if "tflops" in cell else "–"
        rows.append((data, kernel.replace("_", " "), f"{cell['ms']:.3f}", speed))
    return (
        f"The kernels by themselves: one evaluation of the field for a batch of 256 ({_made(found)}).\n"
        f"*TFLOP/s* counts the products of the 3x3 convolution; the chip gives {PEAK:.0f}:\n\n"
        f"{_table(('data', 'kernel', 'ms', 'TFLOP/s'), *rows)}"
    )
