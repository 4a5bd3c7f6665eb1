"""When the 3x3 convolution is done in three products of TF32: on GPUs that gain by it, after a trial beside float64.

Shapes: as in three_products.py.
"""

import logging

import torch
from torch import Tensor

from windermere._torch_private import HAS_OPERATIONS
from windermere.nn.arithmetic import convolving_in, is_tf32_allowed
from windermere.paper.fast.fused import has_triton
from windermere.paper.fast.three_products import FLAT, IMAGES_AT_ONCE, convolve, correlate, pulled_back, turned
from windermere.solvers.paths import are_asked
from windermere.solvers.torch_modes import is_looked_through

CHIPS = ((8, 0), (9, 0), (10, 0))
"""Compute capabilities of A100, H100, H200 and B200, whose tensor cores multiply TF32 at least seven times as fast
as other cores do float32. On other GPUs it is twice as fast at most: three products are no gain there."""
WIDTH_FROM = 64
"""Channels from which on the products take longer than parting numbers and adding sums."""
FEW = 8.0
"""Errors may be so many times those of float32's own convolution. TF32 alone makes them several hundred times."""
ENOUGH = 8e-6
"""Relative errors up to this are never too many. cuDNN's own cotangents of weights, in float32, have 2e-5
on pictures of 32 x 32 pixels and 4e-7 on those of 28 x 28, as it chooses its algorithm."""
_tried: dict[tuple[torch.device, tuple[int, ...]], bool] = {}
PRODUCTS = ("forward", "to the input", "to the weight")


def takes_three(arithmetic: str, z: Tensor, w: Tensor) -> bool:
    """Whether an evaluation at a state z, [B, c', H, L], whose 3x3 convolution has the weight w, does it in three
    products."""
    if arithmetic != "float32" or {z.dtype, w.dtype} != {torch.float32} or is_looked_through():
        return False
    if not (gains(z, w) and are_asked() and HAS_OPERATIONS and is_tf32_allowed() is False):
        return False
    return is_right(z.device, (len(z), w.shape[1], *z.shape[2:]))


def gains(z: Tensor, w: Tensor) -> bool:
    """Whether three products are faster here than one in float32."""
    if not (z.is_cuda and w.is_cuda) or z.numel() == 0 or len(w) < WIDTH_FROM:
        return False
    return torch.version.cuda is not None and torch.cuda.get_device_capability(z.device) in CHIPS and has_triton()


def is_right(device: torch.device, shape: tuple[int, ...]) -> bool:
    """Whether three products of such an x are nearly as exact as float32's. It is tried when that is first asked, but
    never while a CUDA graph is captured, which cannot wait for numbers: then the answer is no, for the time being."""
    if (device, shape) not in _tried:
        if _is_capturing():
            return False
        _tried[device, shape] = _try(device, shape)
    return _tried[device, shape]


def _try(device: torch.device, shape: tuple[int, ...]) -> bool:
    """What is not exact enough is told."""
    try:
        found = errors(device, shape)
        right = are_near(found)
        why = ", ".join(f"{name} {ours:.1e} instead of {plain:.1e}" for name, (ours, plain) in found.items())
    except RuntimeError as error:  # CUDA's
        right, why = False, str(error)
    if not right:
        logging.getLogger("windermere").warning(
            "convolutions of %s are done in float32, not in three products of TF32, which have failed their trial here "
            "(please tell us): %s",
            *("x".join(map(str, shape)), why),
        )
    return right


def are_near(found: dict[str, tuple[float, float]]) -> bool:
    return all(ours <= max(ENOUGH, FEW * plain) for ours, plain in found.values())


@torch.no_grad()
def errors(device: torch.device, shape: tuple[int, ...]) -> dict[str, tuple[float, float]]:
    """By product, the relative errors of three products and of float32's own."""
    random = torch.Generator(device).manual_seed(0)  # nobody else's numbers are touched
    x, on_y = (torch.randn(shape, generator=random, dtype=torch.float32, device=device) for _ in range(2))
    w = torch.randn(shape[1], shape[1], 3, 3, generator=random, dtype=torch.float32, device=device) / shape[1] ** 0.5
    x, w, on_y = (v.contiguous(memory_format=FLAT) for v in (x.relu(), w, on_y))
    exact = exactly(x, w, on_y)
    ours = [convolve(x, w), convolve(on_y, turned(w)), correlate(x, on_y)]
    with convolving_in("float32"):
        plain = plainly(x, w, on_y)
    far = [[float((v - e).norm() / e.norm()) for v, e in zip(each, exact, strict=True)] for each in (ours, plain)]
    return dict(zip(PRODUCTS, zip(*far, strict=True), strict=True))


def plainly(x: Tensor, w: Tensor, on_y: Tensor) -> list[Tensor]:
    """y and the cotangents of x and w, by PyTorch."""
    return [torch.conv2d(x, w, padding=1), *pulled_back(on_y, x, w)]


def exactly(x: Tensor, w: Tensor, on_y: Tensor) -> list[Tensor]:
    """The same in float64, a few images at a time, which take less memory."""
    pairs = zip(*(v.split(IMAGES_AT_ONCE) for v in (x, on_y)), strict=True)  # type: ignore[no-untyped-call]
    y, on_x, on_w = zip(*(plainly(xs.double(), w.double(), ys.double()) for xs, ys in pairs), strict=True)
    return [torch.cat(y), torch.cat(on_x), torch.stack(on_w).sum(0)]


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
