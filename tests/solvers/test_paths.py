"""Which fast paths a solve asks, in which order, and what it makes of their answers."""

import runpy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.errors import NonFiniteError
from windermere.solvers import FastAdjoint, FastPath, Prepared, Problem, Walked, paths, register
from windermere.solvers.paths import Adjoined

FIXED, ADAPTIVE = wm.FixedStep("euler", step=1 / 4), wm.Adaptive("dopri54", tolerance=1e-3)
EACH = pytest.mark.parametrize("solver", [FIXED, ADAPTIVE], ids=["fixed", "adaptive"])


@dataclass(frozen=True, eq=False)
class Noting(FastPath):
    """A path for any field: notes what it is asked, and answers with a state of the same number everywhere, or not."""

    answer: float | None = None
    asked: list[str] = field(default_factory=list)

    def fixed(self, problem: Problem) -> Walked | None:
        self.asked.append("fixed")
        return self._walked(problem)

    def adaptive(self, problem: Problem) -> Walked | None:
        self.asked.append("adaptive")
        return self._walked(problem)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        self.asked.append("adjoint")
        return None

    def _walked(self, problem: Problem) -> Walked | None:
        if self.answer is None:
            return None
        end = torch.full_like(problem.z0, self.answer)
        return Walked.adapted(problem, [problem.z0, end], [torch.ones(()).long().numpy()] * 3)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_paths", ())


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


def solved(solver: Any = FIXED, of: Any = decay, **asked: Any) -> Tensor:
    return torch.as_tensor(wm.solve(of, torch.ones(3, 2), solver, **asked).final)


@EACH
def test_the_first_path_with_an_answer_gives_it(solver: Any) -> None:
    silent, first, second = Noting(), Noting(5.0), Noting(7.0)
    register(silent, first, second)
    assert torch.equal(solved(solver), torch.full((3, 2), 5.0))
    kind = "adaptive" if solver is ADAPTIVE else "fixed"
    assert (silent.asked, first.asked, second.asked) == ([kind], [kind], [])


def test_paths_registered_later_are_asked_before_earlier_ones_and_each_once() -> None:
    general, special = Noting(1.0), Noting(2.0)
    register(general)
    register(special)
    assert torch.equal(solved(), torch.full((3, 2), 2.0))
    register(general)
    assert torch.equal(solved(), torch.full((3, 2), 1.0))
    assert paths._paths == (general, special)


@EACH
def test_where_no_path_answers_the_field_is_solved_step_by_step(solver: Any) -> None:
    slow = solved(solver)
    register(Noting())
    assert torch.equal(solved(solver), slow)


@EACH
def test_fast_paths_can_be_turned_off_for_a_scope(solver: Any) -> None:
    slow, path = solved(solver), Noting(5.0)
    register(path)
    with wm.fast_paths(False):
        assert torch.equal(solved(solver), slow)
        with wm.fast_paths(True):
            assert torch.equal(solved(solver), torch.full((3, 2), 5.0))
    assert len(path.asked) == 1


def test_fast_paths_can_be_turned_off_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, expected in (("0", False), ("1", True)):
        monkeypatch.setenv("WINDERMERE_FAST", setting)
        anew = runpy.run_path(str(paths.__file__))  # as a process does that imports it first
        assert anew["_enabled"].get() is expected


def test_where_pytorch_rounds_or_looks_through_operations_no_path_is_asked() -> None:
    path = Noting(5.0)
    register(path)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solved()
    torch.func.vmap(lambda z: wm.solve(decay, z, FIXED).final)(torch.ones(4, 3, 2))
    assert path.asked == []


def test_a_paths_end_that_is_not_finite_is_explained_by_the_walk() -> None:
    register(Noting(float("nan")))
    with pytest.raises(NonFiniteError, match=r"the field is not finite at t = 0\.5 for 3 of 3"):
        solved(of=lambda t, z: z.log() - 2)


def test_a_path_may_prepare_a_field_for_steps_that_are_taken_one_by_one() -> None:
    class Doubling(FastPath):
        def prepare(self, field: Any) -> Prepared | None:
            return Prepared(lambda t, z: 2 * field(t, z), None) if field is decay else None

    register(Doubling())
    torch.testing.assert_close(solved(), torch.ones(3, 2) / 16)
    torch.testing.assert_close(solved(of=lambda t, z: -z), torch.full((3, 2), 0.75**4))


def test_an_adjoints_way_back_is_asked_for_when_the_solve_begins_and_goes_on_without_it_where_it_gives_up() -> None:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return -self.weight * z

    def gradient(of: Field) -> list[Tensor]:
        z = torch.ones(3, 2, requires_grad=True)
        end = torch.as_tensor(wm.solve(of, z, FIXED, gradient="adjoint").final)
        return list(torch.autograd.grad(end.sum(), [z, of.weight]))

    class Back(FastPath):
        def adjoint(self, problem: Problem) -> FastAdjoint | None:
            def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
                if gives_up:
                    return None
                return Adjoined(7 * a, [torch.full((), 9.0)], torch.tensor(1).numpy())

            return FastAdjoint(adjoin, (of.weight,), of)

    of = Field()
    slow = gradient(of)
    register(Back())
    gives_up = True
    assert all(map(torch.equal, gradient(of), slow))
    gives_up = False
    assert [x.flatten()[0].item() for x in gradient(of)] == [7.0, 9.0]


def test_a_field_with_a_method_called_prepare_is_not_asked_whatever_it_is_declared_to_return() -> None:
    class Prepares(nn.Module):
        def prepare(self) -> "Prepared":
            raise AssertionError("nobody asked for this")

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return -z

    assert torch.equal(solved(of=Prepares()), solved())


@pytest.mark.parametrize("solver", [FIXED, replace(ADAPTIVE, control="sample")], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_no_path_is_asked_where_each_sample_has_times_of_its_own(solver: Any, gradient: Any) -> None:
    register(path := Noting(answer=7.0))
    times = [(0, 1), (0, 2), (1, 0)]
    start = torch.ones(3, 2, requires_grad=True)
    torch.autograd.grad(wm.solve(nn.Bilinear(1, 2, 2), start, solver, times, gradient=gradient).final.sum(), start)
    assert path.asked == []
