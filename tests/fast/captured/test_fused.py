"""What lies between evaluations, by the kernels of steps.cu, is what PyTorch's operations do."""

import ctypes
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windermere as wm
from tests.fast.captured.fields import CASES
from tests.fast.captured.solving import Way, assert_same, leeway
from tests.fast.captured.steps_host import OnHost, is_there, library
from tests.fast.captured.test_every_field import WAYS, made, state, three_solves
from windermere.fast.captured import fused, kernels, trial
from windermere.fast.captured.path import CapturedSteps
from windermere.fast.gpu.driver import Loaded
from windermere.fast.gpu.images import IMAGES, UnusableError

CPU = torch.device("cpu")


@pytest.fixture(params=["cpu"])
def device(request: pytest.FixtureRequest) -> str:
    if not is_there():
        pytest.skip("no C++ compiler here")
    return str(request.param)


@pytest.fixture
def host(device: str, monkeypatch: pytest.MonkeyPatch) -> OnHost:
    """Kernels for a CPU, which are trusted."""
    own = OnHost()
    monkeypatch.setattr(fused, "kernels_of", lambda _: own)
    trial.are_right.cache_clear()
    assert trial.are_right(CPU)
    assert set(own.launched) == set(kernels.NAMES)
    own.launched.clear()
    return own


@pytest.mark.parametrize("name", kernels.NAMES)
@pytest.mark.parametrize("fault", ["left out", "a block too few", "a wrong number"])
def test_kernels_that_err_are_not_trusted(
    name: str, fault: str, host: OnHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = host.run

    def faulty(which: str, blocks: int, *given: Any) -> None:
        if which != name:
            run(which, blocks, *given)
        elif fault == "a block too few":
            run(which, blocks - 1, *given)
        elif fault == "a wrong number":
            run(which, blocks, *given)
            given[{"decide": 1, "aim": 4}.get(name, 0)].view(-1)[0] += 0.25

    monkeypatch.setattr(host, "run", faulty)
    trial.are_right.cache_clear()
    with caplog.at_level(logging.WARNING, "windermere"):
        assert not trial.are_right(CPU)
        assert not fused.can_fuse(torch.ones(3), (), 7)
    assert len(caplog.records) == 1
    trial.are_right.cache_clear()


@pytest.mark.parametrize("name", ["time MLP", "exact trace", "partly frozen"])
@pytest.mark.parametrize("way", WAYS)
def test_a_solve_by_kernels_is_that_step_by_step(name: str, way: str, host: OnHost, path: CapturedSteps) -> None:
    case = CASES[name]
    field = made(case, "cpu")
    found = three_solves(field, case, WAYS[way], "cpu")
    with wm.fast_paths(False):
        wanted = three_solves(made(case, "cpu"), case, WAYS[way], "cpu")
    for seed, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert_same(mine, theirs, leeway(field, state(case.state, seed), WAYS[way]) if seed < 3 else None)
    assert path.shelf.captures
    assert bool(host.launched) == (way != "by sample")


def test_more_steps_than_are_kept_in_place_are_brought_to_memory(host: OnHost, path: CapturedSteps) -> None:
    case = CASES["time MLP"]
    for way in (
        Way(wm.FixedStep("rk4", step=1 / 70)),
        Way(wm.Adaptive("fehlberg21", tolerance=1e-5), (0.0, 0.7, 1.0)),
    ):
        field = made(case, "cpu")
        found = three_solves(field, case, way, "cpu")
        with wm.fast_paths(False):
            wanted = three_solves(field, case, way, "cpu")
        for mine, theirs in zip(found, wanted, strict=True):
            assert_same(mine, theirs)
    assert path.shelf.captures


def test_states_of_other_kinds_are_left_to_pytorch(host: OnHost) -> None:
    assert fused.can_fuse(torch.ones(3), (), 7)
    assert not fused.can_fuse(torch.ones(3).double(), (), 7)
    assert not fused.can_fuse(torch.ones(3), (3,), 7)
    assert not fused.can_fuse(torch.ones(3), (), 8)


def test_a_device_without_nvrtc_has_no_kernels(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> bytes:
        raise UnusableError("there is none")

    monkeypatch.setattr(IMAGES, "ask", fails)
    monkeypatch.setattr(kernels, "architecture", lambda _: "sm")
    kernels._on_gpu.cache_clear()
    with caplog.at_level(logging.INFO, "windermere"):
        assert [kernels.kernels_of(torch.device("cuda", 0)) for _ in range(2)] == [None, None]
    assert len(caplog.records) == 1
    kernels._on_gpu.cache_clear()


class FakeCuda:
    """CUDA's driver, whose kernels are those for a CPU."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.sizes = set[tuple[int, ...]]()

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = 1 + kernels.NAMES.index(name.decode())
        return 0

    def cuFuncSetAttribute(self, *_: Any) -> int:
        return 0

    def cuLaunchKernel(self, function: Any, blocks: int, *given: Any) -> int:
        *sizes, stream, parameters, _ = given
        self.sizes.add((*sizes, stream.value))
        library().launch(function.value - 1, blocks, parameters)
        return self.code


@pytest.fixture
def on_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCuda], None]:
    """Lets kernels be launched as on a GPU."""

    def use(cuda: Any) -> None:
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr("windermere.fast.gpu.driver.stream_of", lambda _: 7)
        own = kernels.OnGpu(Loaded(cuda, ctypes.c_void_p()), 0)
        monkeypatch.setattr(fused, "kernels_of", lambda _: own)
        trial.are_right.cache_clear()

    return use


def test_the_driver_is_given_what_kernels_take(on_gpu: Callable[[FakeCuda], None]) -> None:
    on_gpu(cuda := FakeCuda())
    assert trial.are_right(CPU)
    assert cuda.sizes == {(1, 1, kernels.THREADS, 1, 1, 0, 7)}


def test_a_launch_that_fails_leaves_the_work_to_pytorch(on_gpu: Callable[[FakeCuda], None]) -> None:
    on_gpu(FakeCuda(code=719))
    assert not fused.can_fuse(torch.ones(3), (), 7)
    trial.are_right.cache_clear()
