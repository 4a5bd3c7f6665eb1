"""Flow matching on MNIST with a small U-Net, for audits of a real sampler (`benchmarks.gpu_sampler`).

Shapes: images [n, 1, 32, 32] with values between -1 and 1, of which the outer two pixels are padding; times [n].
"""

import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from windermere.paper.data import load

SIDE, FREQUENCIES = 32, 32


class Residual(nn.Module):
    """Two convolutions that know the time, around which the input goes unchanged."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(16, inputs), nn.GroupNorm(16, outputs)])
        self.first, self.last = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(times, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        h = self.first(functional.silu(self.norms[0](x))) + self.time(times)[:, :, None, None]
        result: Tensor = self.around(x) + self.last(functional.silu(self.norms[1](h)))
        return result


class Velocity(nn.Module):
    """A U-Net velocity(x, t) of three resolutions; t is one number, or one for each image."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        wide, times = 2 * width, 2 * width
        self.times = nn.Sequential(nn.Linear(2 * FREQUENCIES, times), nn.SiLU(), nn.Linear(times, times), nn.SiLU())
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        sizes = [(width, width), (width, wide), (wide, wide)]
        self.down = nn.ModuleList([Residual(a, b, times) for a, b in sizes])
        self.middle = Residual(wide, wide, times)
        back = [(2 * wide, wide), (2 * wide, width), (2 * width, width)]  # of what came from below and what was kept
        self.up = nn.ModuleList([Residual(a, b, times) for a, b in back])
        self.leave = nn.Sequential(nn.GroupNorm(16, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t.reshape(-1, 1) * torch.logspace(0, 3, FREQUENCIES, dtype=x.dtype, device=x.device)
        times = self.times(torch.cat([angles.sin(), angles.cos()], dim=1)).expand(len(x), -1)
        h, kept = self.enter(x), []
        for block in self.down:
            h = block(h, times)
            kept.append(h)
            h = functional.avg_pool2d(h, 2)
        h = self.middle(h, times)
        for block in self.up:
            h = functional.interpolate(h, scale_factor=2.0, mode="nearest")
            h = block(torch.cat([h, kept.pop()], dim=1), times)
        result: Tensor = self.leave(h)
        return result


class Features(nn.Module):
    """A classifier's last hidden layer: what distances between sets of digits are taken in."""

    def __init__(self, width: int = 32, features: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * (SIDE // 4) ** 2, features),
            nn.ReLU(),
        )
        self.head = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.body(x.clamp(-1, 1))
        return result


def digits(device: str, *, test: bool = False) -> tuple[Tensor, Tensor]:
    """All images and labels of the training or the test set."""
    images, labels = load("mnist").test if test else load("mnist").train
    return functional.pad(images.to(device) * 2 - 1, (2, 2, 2, 2), value=-1.0), labels.to(device)


def batches(images: Tensor, labels: Tensor, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator(images.device).manual_seed(seed)
    while True:
        chosen = torch.randint(len(images), (size,), generator=generator, device=images.device)
        yield images[chosen], labels[chosen]


def train_features(device: str, *, iterations: int = 2000, seed: int = 0) -> Features:
    """A classifier of digits; its accuracy on the test set is printed."""
    torch.manual_seed(seed)
    model = Features().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _, (x, y) in zip(range(iterations), batches(*digits(device), 256, seed), strict=False):
        loss = functional.cross_entropy(model.head(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, y = digits(device, test=True)
    with torch.no_grad():
        print(f"features: {float((model.head(model(x)).argmax(1) == y).double().mean()):.4f} of test digits right")
    return model.eval().requires_grad_(False)


def train_velocity(device: str, *, seconds: float, size: int = 512, width: int = 64, seed: int = 0) -> Velocity:
    """Flow matching along straight lines from noise (t = 0) to digits (t = 1), in bfloat16, for so long; the mean of
    the weights over about the last thousand iterations."""
    torch.manual_seed(seed)
    model = Velocity(width).to(device)
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noise = torch.Generator(device).manual_seed(seed + 1)
    begun, done, total = time.perf_counter(), 0, torch.zeros((), device=device)
    for x, _ in batches(*digits(device), size, seed):
        spent = (time.perf_counter() - begun) / seconds
        if spent >= 1:
            break
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (done + 1) / 200, 2 * (1 - spent) + 0.01)
        start = torch.randn(x.shape, generator=noise, device=device)
        t = torch.rand(len(x), 1, 1, 1, generator=noise, device=device)
        with torch.autocast(device, torch.bfloat16):
            loss = (model((1 - t) * start + t * x, t.flatten()) - (x - start)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean.update_parameters(model)
        done, total = done + 1, total + loss.detach()
        if done % 500 == 0:
            print(f"velocity: iteration {done}, loss {float(total) / 500:.4f}", flush=True)
            total.zero_()
    model.load_state_dict(mean.module.state_dict())
    return model.eval().requires_grad_(False)
