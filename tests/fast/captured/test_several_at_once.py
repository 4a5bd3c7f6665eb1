"""Several steps as one piece, of which parts go side by side, do what the same steps do one after the other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from windermere.fast.captured import back, recording
from windermere.fast.captured.adjoint import Gathering
from windermere.fast.captured.back import StepsBack
from windermere.fast.captured.recording import Recording, record
from windermere.fast.captured.steps import FixedSteps, Motion, settle_beside, settle_one
from windermere.fast.captured.tries import Tries
from windermere.solvers.adjoint import AdjointRate
from windermere.solvers.layout import Layout
from windermere.solvers.tableaus import METHODS

from .test_recording import FakeGraph, waiting  # noqa: F401 - a fixture

STEPS = 5


def a_motion(method: str, groups: tuple[int, ...] = ()) -> Motion:
    random = torch.Generator().manual_seed(0)
    z, w, b = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((4, 3), (3, 3), (3,)))
    w.requires_grad_(), b.requires_grad_()

    def rate(t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(z @ w + t * b) * t

    return Motion(METHODS[method], rate, Layout(z.shape, groups), z, (w, b))


def filled(like: Tensor, seed: int) -> Tensor:
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(seed), dtype=like.dtype)


@pytest.mark.parametrize("method", ["euler", "rk4", "dopri54"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("groups", [(), (4,)])
@pytest.mark.parametrize("way", ["side_by_side", "parameters_apart"])
def test_steps_go_back_by_every_way_as_one_by_one(method: str, dense: bool, groups: tuple[int, ...], way: str) -> None:
    found = []
    for work in ("one_step", way):
        gone = StepsBack(a_motion(method, groups), STEPS, dense=dense)
        gone.reset()
        for seed, tensor in enumerate((gone.states, gone.table, gone.on_z, gone.on_rates)):
            tensor.copy_(filled(tensor, seed))
        for _ in range(STEPS if work == "one_step" else 1):
            getattr(gone, work)(*([] if work == "one_step" else [STEPS]))
        found.append((gone.on_z, gone.gathered, gone.place.number))
    assert found[0][1].any()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_compiled_steps_go_back_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile keeps what ties parameters to one stream: others would never be joined again."""
    monkeypatch.setattr(back, "Lanes", None)
    way_back = StepsBack(replace(a_motion("rk4"), is_compiled=True), STEPS)
    (way,) = way_back.step.ways
    way_back.reset()
    way(STEPS)
    assert int(way_back.place.number) == -1


def an_adjoint(method: str, *, adaptive: bool) -> tuple[Motion, Gathering]:
    motion = a_motion(method)
    rate = AdjointRate(motion.rate, 0, motion.tableau, motion.parameters)
    gathering = Gathering(rate, first_is_known=adaptive and motion.tableau.fsal)
    like = torch.stack([motion.like, motion.like.cos()])
    return Motion(motion.tableau, rate, Layout(like.shape, (), pair=0), like, ()), gathering


def fixed(motion: Motion, settle: Gathering) -> tuple[Any, Callable[..., Any]]:
    steps = FixedSteps(motion, STEPS, kept=False, settle=settle)
    steps.reset()
    steps.table.copy_(filled(steps.table, 1))
    return steps, steps._step


def adaptive(motion: Motion, settle: Gathering) -> tuple[Any, Callable[..., Any]]:
    tries = Tries(motion, 0, kept=False, settle=settle)
    tries.reset()
    tries.h.fill_(0.7)  # rejected at first
    return tries, tries._try


@pytest.mark.parametrize("method", ["bosh32", "dopri54", "fehlberg21"])
@pytest.mark.parametrize("kind", [fixed, adaptive])
def test_the_adjoints_shares_are_the_same_beside_the_next_steps(method: str, kind: Callable[..., Any]) -> None:
    found = []
    for beside in (False, True):
        motion, settle = an_adjoint(method, adaptive=kind is adaptive)
        part, take = kind(motion, settle)
        if beside:
            settle_beside(settle, take, motion.like, STEPS)
        else:
            for _ in range(STEPS):
                settle_one(settle, take)
        found.append([part.z, *settle.rate.gradient])
    assert all(x.any() for x in found[0])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_of_several_ways_the_fastest_is_kept_and_tried_with_few(
    waiting: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[tuple[str, int]] = []
    ways = [lambda n, name=name: called.append((name, n)) for name in ("slow", "fast")]
    made = Recording(lambda: None, [8, 3], ways)
    times = iter([2.0, 3.0, 2.5, 1.0, 9.0, 9.0])  # by way, three rounds each: the best of them counts
    monkeypatch.setattr(recording, "_milliseconds", lambda graph, reset: next(times))
    record([made], torch.device("cpu"), lambda: None)
    assert called == [("slow", 3), ("fast", 3), ("fast", 8)]
    replayed: list[Any] = []
    monkeypatch.setattr(FakeGraph, "replay", lambda graph: replayed.append(graph))
    made(8 + 3 + 3 + 1)
    assert made.graph is not None
    kept = [made.several[8], made.several[3], made.several[3], made.graph]
    assert [graph.own for graph in kept] == replayed
