"""What is tuned on images: digits, a small U-Net that flow matching trains, and the features that digits are judged by.

Shapes: images [n, 1, side, side] with values between -1 and 1; times [n] or one number; rows [n, d].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from windermere.paper import data
from windermere.paper.studies.study import Place
from windermere.paper.studies.tied_sampler.fitting import Batches, Fit
from windermere.paper.studies.tied_sampler.rewards import Reward

FREQUENCIES, FASTEST = 16, 1.3
"""So many waves tell the time, the fastest of 10^1.3 radians."""
FEATURE_COUNT, CLASSIFIER_RATE, BLUR = 64, 2e-3, 0.5
"""A classifier's features, its learning rate, and the most noise in its images: samples are seldom clean."""
CLASSIFIERS = 2000
"""The seed of the first classifier. It is the same for all seeds of a study, so that their distances compare."""
REAL = 5000
"""So many real images say how far apart they are."""
PIXELS, FEATURES, OTHER = "pixels", "features", "another classifier"
AIM = 3
"""The rewarded digit; any would do. The reward is the logarithm of the probability that a classifier gives it."""
OTHER_REWARD, RATIO = "another classifier's reward", "the reward's ratio"
"""What judges rewarded samples besides: a classifier that took no part, and the plane's rule, by which 0.0002 is worse
than 0.0001 although real digits lack 0.1."""
Part: TypeAlias = Callable[[Tensor], Tensor]
"""Rows [n, d] of images."""


class Residual(nn.Module):
    """Two convolutions that know the time, around which the input goes unchanged. No batch statistics."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm, self.time = nn.GroupNorm(4, outputs), nn.Linear(times, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        h = self.first(functional.silu(x)) + self.time(times)[:, :, None, None]
        result: Tensor = self.around(x) + self.last(functional.silu(self.norm(h)))
        return result


class UNet(nn.Module):
    """A velocity(t, x) that halves the images until their side is 7, and doubles them again."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        halvings, wide = (side // 7).bit_length() - 1, 2 * width
        self.times = nn.Sequential(nn.Linear(2 * FREQUENCIES, wide), nn.SiLU(), nn.Linear(wide, wide), nn.SiLU())
        self.enter, self.leave = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        widths = [width] + halvings * [wide]
        self.down = nn.ModuleList(Residual(a, b, wide) for a, b in pairwise([width, *widths]))
        self.middle = Residual(wide, wide, wide)
        self.up = nn.ModuleList(
            Residual(below + kept, kept, wide) for below, kept in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:  # so that audits find its flow in float32
            raise TypeError("this U-Net does not support float64, in which a CPU takes nine times as long")
        angles = t.reshape(-1, 1) * torch.logspace(0, FASTEST, FREQUENCIES, dtype=x.dtype, device=x.device)
        times = self.times(torch.cat([angles.sin(), angles.cos()], dim=1)).expand(len(x), -1)
        h, kept = self.down[0](self.enter(x), times), []
        for block in list(self.down)[1:]:
            kept.append(h)
            h = block(functional.avg_pool2d(h, 2), times)
        h = self.middle(h, times)
        for block in self.up:
            h = functional.interpolate(h, scale_factor=2.0, mode="nearest")
            h = block(torch.cat([h, kept.pop()], dim=1), times)
        result: Tensor = self.leave(h)
        return result


class Classifier(nn.Module):
    """A classifier of digits, whose last hidden layer is the features."""

    def __init__(self, side: int) -> None:
        super().__init__()
        small = ((side + 1) // 2 + 1) // 2
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(32 * small**2, FEATURE_COUNT),
            nn.SiLU(),
        )
        self.head = nn.Linear(FEATURE_COUNT, 10)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.features(x))
        return result


@dataclass(frozen=True)
class Kind:
    """How large the images are, and what is trained on them."""

    side: int
    width: int
    """How many channels the U-Net has at the images' own resolution."""
    matching: Batches
    tuning: Batches
    features: int
    """Iterations of the classifiers."""


KINDS: Mapping[str, Kind] = {
    "mnist14": Kind(14, 16, Batches(128, 2e-3), Batches(128, 2.5e-4), 1000),
    "mnist28": Kind(28, 32, Batches(256, 1e-3), Batches(256, 2.5e-4), 2000),
}
"""What a CPU can train in minutes: MNIST, pooled two by two pixels; and MNIST itself, for a GPU. Of the rates of tuning
1e-3, 5e-4 and 2.5e-4 the last was best for four steps' own samples, with seed 0 of the smaller ones."""


@dataclass(frozen=True, eq=False)
class Digits:
    """MNIST at a resolution. What is drawn lies on the CPU, the same for all devices."""

    kind: Kind
    parts: Mapping[str, Part]
    """What digits are judged by; each is scaled to a mean squared distance of 1 between real images."""
    reward: Reward
    other_rewards: Mapping[str, Reward]
    """What judges rewarded samples besides."""
    dtype: torch.dtype = torch.float32
    """What tests compute in: float64 would take eight times as long, and tell no more of so few samples."""

    @property
    def matching(self) -> Batches:
        return self.kind.matching

    @property
    def tuning(self) -> Batches:
        return self.kind.tuning

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.kind.side, self.kind.side)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return _batch(self.kind.side, n, generator)[0]

    def tests(self, n: int, generator: torch.Generator) -> Tensor:
        """Images that no training has seen, none of them twice."""
        images, _ = _read(self.kind.side, "test")
        return images[torch.randperm(len(images), generator=generator)[:n]]

    def embed(self, samples: Tensor) -> Tensor:
        """Pixels, and a classifier's features."""
        return torch.cat([self.parts[name](samples) for name in (PIXELS, FEATURES)], dim=1)

    def others(self) -> Mapping[str, Part]:
        """The pixels alone, and the features of a classifier that has no part in any tuning."""
        return {name: self.parts[name] for name in (PIXELS, OTHER)}


@cache
def digits(name: str, place: Place) -> Digits:
    """With its classifiers, which are trained once."""
    kind = KINDS[name]
    first, second = (_classifier(name, kind, seed, place) for seed in (CLASSIFIERS, CLASSIFIERS + 1))
    real = _read(kind.side, "train")[0][:REAL].to(place.device)
    parts = {PIXELS: nn.Flatten(), FEATURES: first.features, OTHER: second.features}
    scaled = {name: _scaled(part, real) for name, part in parts.items()}
    reward, others = _reward(kind, first, place), _reward(kind, second, place)
    return Digits(kind, scaled, reward, {OTHER_REWARD: others, RATIO: Reward(reward.shortfall)})


@torch.no_grad()
def _reward(kind: Kind, classifier: Classifier, place: Place) -> Reward:
    """Minus the logarithm of the probability of one digit, and what real ones lack that no training has seen."""

    def shortfall(samples: Tensor) -> Tensor:
        logits = classifier(samples.float())  # audits show outputs in float64
        lacking: Tensor = -logits.log_softmax(dim=1)[:, AIM]
        return lacking

    images, labels = _read(kind.side, "test")
    return Reward(shortfall, real=float(shortfall(images[labels == AIM].to(place.device)).mean()))


@torch.no_grad()
def _scaled(part: nn.Module, real: Tensor) -> Part:
    spread = (2 * part(real).var(dim=0).sum()).sqrt()
    return lambda samples: part(samples) / spread


def _classifier(name: str, kind: Kind, seed: int, place: Place) -> Classifier:
    """One that tells digits apart, in images with noise too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Classifier(kind.side).to(place.device)
    batches = Batches(kind.matching.size, CLASSIFIER_RATE)

    def loss(generator: torch.Generator) -> Tensor:
        images, labels = _batch(kind.side, batches.size, generator)
        noise = BLUR * torch.rand(batches.size, 1, 1, 1, generator=generator)
        noisy = images + noise * torch.randn(images.shape, generator=generator)
        return functional.cross_entropy(model(noisy.to(place.device)), labels.to(place.device))

    kept = place.folder and place.folder / f"{name}-classifier-{seed}.safetensors"
    Fit(model, batches, seed, kind.features).run(loss, kept)
    return model.eval().requires_grad_(False)


def _batch(side: int, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    images, labels = _read(side, "train")
    chosen = torch.randint(len(images), (n,), generator=generator)
    return images[chosen], labels[chosen]


@cache
def _read(side: int, part: str) -> tuple[Tensor, Tensor]:
    """All images [n, 1, side, side] and labels [n] of the training or the test set."""
    split = getattr(data.load("mnist"), part)
    return functional.avg_pool2d(split.inputs, split.inputs.shape[-1] // side) * 2 - 1, split.labels
