"""The compiled walk: which solves it takes, what happens without a compiler, and that threads change nothing."""

import gc
import platform
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from tests.fast.small_stack import is_solved_on_a_small_stack, succeeds
from tests.fast.spheres import Convolving, Eagerly, Ensemble, assert_same, samples, solved, sphere_field
from tests.processes import by_forks
from windermere.errors import NonFiniteError
from windermere.fast.cpu import compiled, native, native_call
from windermere.paper.architectures import SphereField, initialise
from windermere.paper.fast.spheres import Spheres
from windermere.solvers import METHODS, Adaptive, FixedStep, solve
from windermere.solvers.grid import make_grid

EULER = FixedStep("euler", step=1 / 8)


@pytest.fixture
def _anew() -> Iterator[None]:
    for cached in (compiled.library, compiled.vector_bytes):
        cached.cache_clear()
    yield
    for cached in (compiled.library, compiled.vector_bytes):
        cached.cache_clear()


def needs_a_compiler() -> None:
    if compiled.library("double", "sphere") is None:
        pytest.skip("no C compiler here")


@pytest.mark.parametrize("batch", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("members", [1, 3])
def test_any_number_of_samples_is_walked(batch: int, members: int) -> None:
    needs_a_compiler()
    ensemble, z, solver = Ensemble(2, members), samples(members, batch, 2), [FixedStep("rk4", step=1 / 3)] * members
    wanted = ensemble.tensors.values()
    assert_same(solved(ensemble, z, solver, wanted), solved(Eagerly(ensemble), z, solver, wanted))


def test_the_same_bits_come_from_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_a_compiler()
    monkeypatch.setattr(native_call, "WORTH_A_THREAD", 1)
    ensemble, z, solver = Ensemble(2, 3), samples(3, 50, 2), [EULER] * 3
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(solved(ensemble, z, solver, ensemble.tensors.values()))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(("dtype", "closeness"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=str)
@pytest.mark.parametrize("points", [1, 2, 3, 10])
def test_the_papers_width_agrees_with_the_eager_walk(points: int, dtype: torch.dtype, closeness: float) -> None:
    needs_a_compiler()
    field, z = initialise(SphereField(points), 0).to(dtype), 0.3 * samples(20, points).to(dtype)
    with torch.no_grad():
        for layer in (field.lift, field.mix, field.lower):
            layer.bias.copy_(0.3 * samples(len(layer.bias)))  # type: ignore[operator, union-attr, arg-type]
    found = solved(field, z, EULER, field.parameters())
    expected = solved(Eagerly(field), z, EULER, field.parameters())
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=closeness, atol=closeness * float(want.detach().abs().max()))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of several sizes are x86's")
@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize(("without", "largest"), [("-mno-avx512f", 32), ("-mno-avx", 16)])
def test_a_processor_with_shorter_vectors_comes_to_the_same(
    without: str, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_a_compiler()
    compiled.library.cache_clear()
    monkeypatch.setattr(compiled, "OPTIONS", (*compiled.OPTIONS, without))
    ensemble, z = Ensemble(2, 3), samples(3, 11, 2)
    for solver in (EULER, Adaptive("dopri54", tolerance=1e-4)):
        found = solved(ensemble, z, [solver] * 3, ensemble.tensors.values())
        assert_same(found, solved(Eagerly(ensemble), z, [solver] * 3, ensemble.tensors.values()))
    assert compiled.vector_bytes("double", "sphere") <= largest


def test_at_a_kink_no_channel_is_positive() -> None:
    """Kinks that coincide, states that lie on them, and channels that never or always are positive."""
    needs_a_compiler()
    field = sphere_field(3)
    z = torch.tensor([[0.0, 0.5, -0.5], [-0.0, 0.25, 0.5], [1.0, -1.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        field.lift.weight.copy_(torch.tensor([1.0, -1, 2, -2, 0, 0, 1, -1]).view(-1, 1, 1))
        field.lift.bias.copy_(torch.tensor([0.0, 0, -1, 1, 0, 0.5, -0.5, -0.5]))  # type: ignore[union-attr]
    for solver in (FixedStep("euler", step=1.0), Adaptive("dopri54", tolerance=1e-3)):
        found = solved(field, z, solver, field.parameters())
        expected = solved(Eagerly(field), z, solver, field.parameters())
        assert_same(found, expected)
        assert all(torch.equal(a == 0, b == 0) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("layer", ["lift", "mix", "lower"])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_weight_that_is_not_a_number_is_noticed_wherever_the_state_is(layer: str, part: str) -> None:
    field = sphere_field(2)
    for channel in range(len(getattr(getattr(field, layer), part))):
        broken = sphere_field(2)
        with torch.no_grad():
            getattr(getattr(broken, layer), part)[channel] = torch.nan
        for z in (samples(3, 2), -samples(3, 2).abs(), samples(3, 2).abs()):
            with pytest.raises(NonFiniteError, match="not finite at t"):
                solve(broken, z, EULER)


def calls_alive() -> list[native_call.Call]:
    return [o for o in gc.get_objects() if type(o) is native_call.Call]


def test_the_memory_of_a_solve_goes_with_its_end_and_waits_for_no_collector() -> None:
    needs_a_compiler()
    field, z = sphere_field(2), samples(5, 2)
    gc.disable()
    try:
        earlier = calls_alive()  # another test's, in a cycle of its own that the collector has not come to
        final: Any = solve(field, z, EULER).final
        (held,) = [weakref.ref(call) for call in calls_alive() if call not in earlier]
        del final
        assert held() is None
    finally:
        gc.enable()


LARGEST = """
from windermere.fast.cpu import native
from windermere.paper.architectures import SphereField, initialise
field = initialise(SphereField(native.POINTS_UP_TO, width=native.CHANNELS_UP_TO).double(), 0)
z = torch.full((2, field.points), 0.1).double()
"""


def test_a_solve_of_the_largest_field_fits_on_a_small_stack() -> None:
    needs_a_compiler()
    assert is_solved_on_a_small_stack(LARGEST)


def test_threads_are_worth_their_while_by_the_points_too(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Noting:
        def there(self, _: Any, threads: int) -> None:
            given.append(threads)

    needs_a_compiler()
    monkeypatch.setattr(native_call, "library", lambda *_: Noting())
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # or else PyTorch would keep two
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    grid = make_grid([EULER], (0.0, 1.0))
    for points in (2, 900):
        weights = [p.detach() for p in sphere_field(points).parameters()]
        native.walk_in_c(METHODS["euler"], grid, samples(32, points), Spheres(weights, points).native)
        with native_call.threads_for_c_alone():  # whatever PyTorch has meanwhile
            monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
            native.walk_in_c(METHODS["euler"], grid, samples(32, points), Spheres(weights, points).native)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert given == [1, 1, 2, 2]


FORKING = """
import os, torch
from tests.fast.test_native import EULER, native_call, samples, solve, sphere_field
native_call.WORTH_A_THREAD = 1
torch.get_num_threads = lambda: 3
field, z = sphere_field(2), samples(50, 2)
with torch.no_grad():
    expected = solve(field, z, EULER).final
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(solve(field, z, EULER).final, expected) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@by_forks
def test_a_child_of_a_fork_solves_with_threads_of_its_own() -> None:
    """In a process of its own: in this one, JAX may have threads by now, which do not survive a fork."""
    needs_a_compiler()
    assert succeeds(FORKING)


def test_gradients_that_are_zero_stay_zero() -> None:
    """Adam would take a rounding error in their place for a gradient like any other."""
    needs_a_compiler()
    field, z = initialise(SphereField(2), 0), torch.tensor([[0.5, -0.5]])
    found = solved(field, z, EULER, field.parameters())[4]
    expected = solved(Eagerly(field), z, EULER, field.parameters())[4]  # the mixing weight's, [out, in, 3]
    only_at_sides = (expected[..., 1] == 0) & (expected != 0).any(dim=-1)
    assert only_at_sides.any()
    assert torch.equal(found == 0, expected == 0)


@pytest.mark.parametrize("solver", [FixedStep("euler", step=1 / 8), Adaptive("dopri54", tolerance=1e-3)], ids=str)
def test_what_fills_up_a_tile_does_not_spoil_the_gradients_by_blowing_up(solver: Any) -> None:
    """A field that is zero for these samples, and overflows from z = 0 on."""
    needs_a_compiler()
    field, z = SphereField(1, width=1).double(), torch.full((3, 1), 0.4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.zero_()
        field.lift.weight.fill_(-1.0)
        field.lift.bias.fill_(0.05)  # type: ignore[union-attr]
        field.mix.weight.fill_(1.0)
        field.lower.weight.fill_(-1e300)
    assert_same(solved(field, z, solver, field.parameters()), solved(Eagerly(field), z, solver, field.parameters()))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is")  # by PyTorch itself
@pytest.mark.parametrize("solver", [FixedStep("euler", step=1 / 8), Adaptive("dopri54", tolerance=1e-3)], ids=str)
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
@pytest.mark.parametrize("points", [2, 30])
def test_derivatives_in_forward_mode_are_those_of_the_convolutions(solver: Any, gradient: Any, points: int) -> None:
    field, z = sphere_field(points), samples(5, points)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z, z.cos())  # type: ignore[no-untyped-call]
        ends = [solve(each, dual, solver, gradient=gradient).final for each in (field, Convolving(field))]
        found, wanted = (forward_ad.unpack_dual(end).tangent for end in ends)  # type: ignore[no-untyped-call]
    assert wanted.abs().sum() > 0
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is")
def test_traces_and_transforms_do_not_go_by_way_of_c() -> None:
    """A trace would hold the numbers of its example; a transform's tensors have no memory of their own."""
    needs_a_compiler()
    own, z = Spheres([p.detach() for p in sphere_field(2).parameters()], 2).native, samples(4, 2)
    assert native.can_walk(z, own)
    found = []

    def ask(x: Tensor) -> Tensor:
        found.append(native.can_walk(x, own))
        return x + 1

    torch.func.vmap(ask)(samples(3, 4, 2))
    torch.jit.trace(ask, z, check_trace=False)  # type: ignore[no-untyped-call]
    assert found == [False, False]


def test_float32_is_close_to_float64() -> None:
    needs_a_compiler()
    field = initialise(SphereField(2), 0)
    z = samples(128, 2).float()
    single = solve(field, z, EULER).final
    double = solve(field.double(), z.double(), EULER).final
    torch.testing.assert_close(single, torch.as_tensor(double).float(), rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_is_still_found_and_named() -> None:
    field, z = sphere_field(2), samples(5, 2)
    z[3, 1] = torch.nan
    with pytest.raises(NonFiniteError, match="initial state"):
        solve(field, z, EULER)
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(1e150)
    with pytest.raises(NonFiniteError, match="not finite at t"):
        solve(field, samples(5, 2), EULER)


@pytest.mark.parametrize(
    "z",
    [samples(4, 2).float(), samples(3, 4, 2), samples(4, 2).to("meta"), samples(0, 2), torch.ones(4, 5000).double()],
    ids=lambda z: str(tuple(z.shape)),
)
def test_states_that_do_not_fit_the_weights_are_not_taken(z: Tensor) -> None:
    needs_a_compiler()
    own = Spheres([p.detach() for p in sphere_field(2).parameters()], 2).native
    assert native.can_walk(samples(4, 2), own)
    assert not native.can_walk(z, own)


def test_a_state_of_other_points_than_the_field_has_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        solve(sphere_field(2), samples(4, 3), EULER)


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize(
    "setting", [{"CC": "no-such-compiler"}, {"CC": "false"}, {"CC": ""}, {"CC": "cc '"}, {"WINDERMERE_NATIVE": "0"}]
)
def test_without_a_compiler_that_works_operations_do_it(
    setting: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert compiled.library("double", "sphere") is None
    field, z = sphere_field(2), samples(5, 2)
    assert_same(solved(field, z, EULER, field.parameters()), solved(Eagerly(field), z, EULER, field.parameters()))


@pytest.mark.usefixtures("_anew")
def test_where_nothing_can_be_kept_it_is_compiled_for_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_a_compiler()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiled.library.cache_clear()
    assert compiled.library("double", "sphere") is not None

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    compiled.library.cache_clear()
    assert compiled.library("double", "sphere") is not None


@pytest.mark.usefixtures("_anew")
def test_it_is_compiled_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_a_compiler()
    compiled.library.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled.library("float", "sphere") is not None
    assert [path.suffix for path in (tmp_path / "windermere" / "native").iterdir()] == [".so"]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    compiled.library.cache_clear()
    assert compiled.library("float", "sphere") is not None
