"""What becomes of the image kernels on an H100 or H200, without one: `python -m benchmarks.compile_image_kernel`.

Compiles them for sm_90 as `gpu_image_kernel` would try them, and prints registers, bytes spilled and shared memory, how
many of the machine's instructions multiply matrices and how many wait for such, and what ptxas complains about. As many
waits as products mean that products do not overlap.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.gpu_image_kernel import BATCH, KERNELS, SHAPES, candidates, label
from windermere.paper.arithmetic import FUSION
from windermere.paper.fast import image_kernels
from windermere.paper.fast.image_evaluation import Evaluation, Launch, Shares

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.uint8: "*u8"}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
NAMES = {"forward": "field_forward", "backward": "field_backward"}
"""What kernels are called, where it is not as the methods that run them."""


class Caught:
    """Stands in for a kernel, and remembers what it would have been launched with."""

    def __init__(self) -> None:
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **options: Any) -> None:
            self.arguments = (args, options)

        return launch


def arguments(data: str, kernel: str, launch: Launch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a kernel is launched with, its tensors without numbers."""
    channels, width, side = SHAPES[data]
    shapes = [(width, channels, 1, 1), (width, width, 3, 3), (channels, width, 1, 1)]
    with torch.device("meta"):
        weights = [w for shape in shapes for w in (torch.empty(shape), torch.empty(shape[0]))]
        run = Evaluation(launch, torch.empty(BATCH, channels, side, side), weights)
        sums, caught = Shares(run), Caught()
        patches, states, hidden = run.new_patches(), run.new_states(2), run.new_hidden(1)
    run.kernels = SimpleNamespace(**{NAMES.get(kernel, kernel): caught})
    given: dict[str, tuple[Any, ...]] = {
        "forward": (patches, states[0], None if run.source == "recomputed" else hidden),
        "backward": (patches, hidden[0], patches, states[1], sums),
        "mix_gradient": (patches, patches, hidden[0], sums),
        "lower_gradient": (states[0], patches, hidden, sums),
        "combine": (states[0], states, states[0], 0, (1.0,), states[1], patches),
    }
    getattr(run, kernel)(*given[kernel])
    assert caught.arguments is not None
    return caught.arguments


def compiled(kernel: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    function = getattr(image_kernels, NAMES.get(kernel, kernel))
    chosen = {k: options[k] for k in ("num_warps", "num_stages", "maxnreg", *FUSION) if k in options}
    constants = {k: v for k, v in options.items() if k not in chosen}
    given = dict(zip(function.arg_names, args, strict=False))
    types = {k: TYPES[v.dtype] if isinstance(v, Tensor) else "i32" for k, v in given.items()}
    signature = {k: types.get(k, "constexpr") for k in function.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, v in enumerate(args) if isinstance(v, Tensor)}
    source = ASTSource(function, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=chosen)


def described(found: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        code, text = Path(folder) / "kernel.cubin", Path(folder) / "kernel.ptx"
        code.write_bytes(found.asm["cubin"])
        text.write_text(found.asm["ptx"])
        machine = _said("cuobjdump", "-sass", str(code))
        usage = re.search(r"REG:(\d+) STACK:(\d+)", _said("cuobjdump", "-res-usage", str(code)))
        remarks = set(re.findall(r"\(C75\d\d\) Potential[^.]*", _said("ptxas", "-arch=sm_90a", "-v", str(text))))
    registers, stack = usage.groups() if usage else ("?", "?")
    counts = {name: len(re.findall(name, machine)) for name in ("HGMMA", "WARPGROUP.DEPBAR", "BAR.SYNC")}
    products, waits, barriers = counts.values()
    memory = found.metadata.shared
    return f"{registers} registers, {stack} B spilled, {memory} B shared; {products} products, {waits} waits, " + (
        f"{barriers} barriers {'; '.join(remark[:110] for remark in remarks)}"
    )


def _said(tool: str, *args: str) -> str:
    done = subprocess.run([TOOLS / tool, *args], capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    return done.stdout + done.stderr


def main(everything: bool) -> None:
    """The defaults, or all that a sweep would try."""
    for data in SHAPES:
        for base in (Launch(), Launch(hidden="recomputed")):
            for kernel in KERNELS:
                for launch in candidates(kernel, base) if everything else [base]:
                    try:
                        text = described(compiled(kernel, *arguments(data, kernel, launch)))
                    except Exception as error:  # noqa: BLE001
                        text = f"FAILED {type(error).__name__}: {str(error)[-300:]}"
                    print(f"{data}, {base.hidden}: {kernel}: {label(kernel, launch)}\n    {text}", flush=True)


if __name__ == "__main__":
    main("all" in sys.argv[1:])
