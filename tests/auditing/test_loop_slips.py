"""`audit_loop` where a loop is right for one number of steps alone, starts elsewhere, or guides in one call."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import windermere as wm
from windermere.errors import UsageError

NOISE = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
Loop = Callable[[Callable[..., Tensor], Tensor, int], Tensor]


def velocity(x: Tensor, t: float) -> Tensor:
    return torch.sin(x + 3 * t)


def euler(size: Callable[[int], float], time: Callable[[int, int], float], scale: float = 1.0) -> Loop:
    """Steps of such sizes at such times, from so many times the noise."""

    def loop(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
        x = scale * x
        for k in range(steps):
            x = x + v(x, time(k, steps)) * size(steps)
        return x

    return loop


def drawing(seed: int | None) -> Loop:
    def loop(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return euler(lambda n: 1 / n, lambda k, n: k / n)(v, torch.randn(x.shape, generator=generator), steps)

    return loop


def karras(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        rate = v(x, k / steps)
        ahead = x + rate / steps
        x = ahead if k == steps - 1 else x + (rate + v(ahead, (k + 1) / steps)) / (2 * steps)
    return x


def guided(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        one, other = v(torch.cat([x, x]), k / steps).chunk(2)
        x = x + (2 * one - other) / steps
    return x


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (euler(lambda n: 0.1, lambda k, n: k / n), "but not with 20: there its steps sum to 2, not to 1"),
        (
            euler(lambda n: 1 / n, lambda k, n: k / 10),
            "but not with 20: there in step 2 it gives the velocity t = 0.1,",
        ),
    ],
)
def test_a_loop_that_is_right_for_one_number_of_steps_alone_is_wrong(loop: Loop, words: str) -> None:
    report = wm.audit_loop(loop, velocity, NOISE, steps=10)
    assert not report.agrees
    assert report.sentence.startswith("with 10 steps it is right")
    assert words in report.sentence


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (euler(lambda n: 1 / n, lambda k, n: k / n, scale=80.0), "it starts from 80 times the noise that it is given"),
        (drawing(1), "it does not start from the noise that it is given"),
        (euler(lambda n: 1 / n, lambda k, n: 1000 - 1000 * k / n), "1000 times what is left of its steps"),
    ],
)
def test_a_loop_that_starts_elsewhere_or_counts_its_time_down_is_told_that(loop: Loop, words: str) -> None:
    report = wm.audit_loop(loop, velocity, NOISE, steps=10)
    assert not report.agrees
    assert words in report.sentence


def test_a_loop_that_starts_from_noise_of_its_own_is_refused_for_that() -> None:
    with pytest.raises(UsageError, match="does not start from the noise that it is given, but from some that it draws"):
        wm.audit_loop(drawing(None), velocity, NOISE)


def test_a_last_step_of_euler_at_the_end_of_heun_is_told() -> None:
    report = wm.audit_loop(karras, velocity, NOISE, method="heun")
    assert "its last step takes one evaluation, not the two of heun" in report.sentence


def test_guidance_in_one_call_of_two_states_for_each_sample_is_told() -> None:
    with pytest.raises(UsageError, match="two states for each sample together, as guidance does"):
        wm.audit_loop(guided, velocity, NOISE)
