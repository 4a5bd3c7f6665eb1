"""What makes an image field's training step fast on a GPU: `python3 benchmarks/gpu_images.py OUT.json`, about a minute.

One member, CIFAR-10's or MNIST's field and head on random images, Adam, batch 256; each variant's gradient is compared
with that of exact float32. These are trials beside the library: none of the variants is part of it yet.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Rate = Callable[[Tensor], Tensor]
BATCH, CLASSES = 256, 10
SHAPES = {"cifar": (3, 128, 32), "mnist": (1, 96, 28)}
"""Channels, width of the hidden layers, side."""


def parameters(channels: int, width: int, side: int) -> list[Tensor]:
    """Kaiming normal weights and zero biases of field and head."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(width, channels, 1, 1), (width, width, 3, 3), (channels, width, 1, 1), (CLASSES, channels * side**2)]
    found = []
    for shape in shapes:
        fan_in = torch.Size(shape[1:]).numel()
        weight = torch.randn(*shape, generator=generator, dtype=torch.float64) * (2 / fan_in) ** 0.5
        found += [weight.float().cuda(), torch.zeros(shape[0], device="cuda")]
    return found


def field(z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, w3: Tensor, b3: Tensor) -> Tensor:
    hidden = F.relu(F.conv2d(z, w1, b1))
    hidden = F.relu(F.conv2d(hidden, w2, b2, padding=1))
    return F.conv2d(hidden, w3, b3)


class HandDerived(torch.autograd.Function):
    """The field in bfloat16; the way back recomputes both hidden layers, so only z is kept."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(z, *weights)
        return field(z.bfloat16(), *weights).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, w1, b1, w2, b2, w3, _ = ctx.saved_tensors
        low = z.bfloat16()
        first = F.conv2d(low, w1, b1).relu_()
        second = F.conv2d(first, w2, b2, padding=1).relu_()
        cotangent, w3_grad, b3_grad = _conv_backward(grads[0].bfloat16(), second, w3, 0)
        cotangent = torch.ops.aten.threshold_backward(cotangent, second, 0)
        cotangent, w2_grad, b2_grad = _conv_backward(cotangent, first, w2, 1)
        cotangent = torch.ops.aten.threshold_backward(cotangent, first, 0)
        cotangent, w1_grad, b1_grad = _conv_backward(cotangent, low, w1, 0)
        return cotangent.float(), w1_grad, b1_grad, w2_grad, b2_grad, w3_grad, b3_grad


def _conv_backward(cotangent: Tensor, x: Tensor, weight: Tensor, padding: int) -> Any:
    sizes, pads = [weight.shape[0]], [padding, padding]
    return torch.ops.aten.convolution_backward(
        cotangent, x, weight, sizes, [1, 1], pads, [1, 1], False, [0, 0], 1, [True, True, True]
    )


def rate_of(weights: list[Tensor], kind: str, function: Callable[..., Tensor]) -> Rate:
    if kind == "hand-derived":
        low = [w.bfloat16() for w in weights]
        return lambda z: HandDerived.apply(z, *low)
    if kind == "bf16":

        def rate(z: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return function(z, *weights).float()

        return rate
    if kind == "checkpoint":
        return lambda z: checkpoint(function, z, *weights, use_reentrant=False, preserve_rng_state=False)
    return lambda z: function(z, *weights)


def loss_of(rate: Rate, x: Tensor, y: Tensor, head: list[Tensor], steps: int) -> Tensor:
    z = x
    for _ in range(steps):
        z = z + rate(z) / steps
    return F.cross_entropy(F.linear(z.flatten(1), *head), y)


def captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds(step: Callable[[], None], rounds: int) -> float:
    for _ in range(5):
        step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in pairwise(marks))[rounds // 2]


def variant(
    data: str,
    kind: str,
    exact: list[Tensor] | None,
    *,
    steps: int = 16,
    last: bool = True,
    compiled: bool = False,
    capture: bool = False,
) -> tuple[dict[str, float], list[Tensor]]:
    """`last`: channels last. Returns the numbers, and the gradients before any step."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind != "exact"
    channels, width, side = SHAPES[data]
    layout = torch.channels_last if last else torch.contiguous_format
    weights = [
        (w.contiguous(memory_format=layout) if w.ndim == 4 else w).requires_grad_()
        for w in parameters(channels, width, side)
    ]
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(BATCH, channels, side, side, generator=generator).cuda().contiguous(memory_format=layout)
    y = torch.randint(CLASSES, (BATCH,), generator=generator).cuda()
    optimizer = torch.optim.Adam(weights, lr=1e-5, fused=True, capturable=True)
    function = torch.compile(field) if compiled else field

    def forward_and_back() -> None:
        optimizer.zero_grad()
        loss_of(rate_of(weights[:6], kind, function), x, y, weights[6:], steps).backward()

    def step() -> None:
        forward_and_back()
        optimizer.step()

    forward_and_back()
    gradients = [w.grad.double().clone() for w in weights if w.grad is not None]
    optimizer.zero_grad()
    numbers = {"ms": milliseconds(captured(step) if capture else step, 20 if steps < 64 else 8)}
    numbers["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    if exact is not None:
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(gradients, exact, strict=True)]
        numbers["gradient_error"] = max(errors)
    return numbers, gradients


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("tf32", {"last": False}),
    ("tf32", {}),
    ("tf32", {"compiled": True, "capture": True}),
    ("bf16", {}),
    ("bf16", {"capture": True}),
    ("bf16", {"compiled": True, "capture": True}),
    ("hand-derived", {"capture": True}),
    ("tf32", {"steps": 64, "last": False}),
    ("checkpoint", {"steps": 64}),
    ("bf16", {"steps": 64, "capture": True}),
    ("hand-derived", {"steps": 64, "capture": True}),
]


def main(out: Path) -> None:
    torch.backends.cudnn.benchmark = True
    results: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    begun = time.perf_counter()
    for data in SHAPES:
        exact = {steps: variant(data, "exact", None, steps=steps, last=False)[1] for steps in (16, 64)}
        for kind, settings in VARIANTS:
            name = f"{data}, {kind}, {', '.join(f'{k} {v}' for k, v in settings.items()) or 'channels last'}"
            try:
                results[name], _ = variant(data, kind, exact[settings.get("steps", 16)], **settings)
            except RuntimeError as error:  # one variant that fails must not cost the others
                results[name] = {"error": str(error)[:400]}
            print(f"{time.perf_counter() - begun:5.0f} s  {name:<60} {results[name]}", flush=True)
            out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
