"""Local Lipschitz constants, against singular values."""

import pytest
import torch
from torch import Tensor, nn

from windermere.auditing.evidence import jacobians as module
from windermere.auditing.evidence.jacobians import jacobians
from windermere.auditing.evidence.lipschitz import Lipschitz, lipschitz
from windermere.errors import UsageError
from windermere.paper.architectures import ImageField, SphereField, initialise

ZERO = torch.tensor(0.0, dtype=torch.float64)


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(field: nn.Module, z: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.matrix_norm(jacobians(lambda z: field(ZERO, z), z), ord=2)
    return norms


@pytest.mark.parametrize("seed", range(4))
def test_a_linear_fields_constant_is_its_spectral_norm(seed: int) -> None:
    matrix = points(6, 6, seed=seed)
    found = lipschitz(lambda t, z: z @ matrix.T, points(3, 5, 6), (0.0, 0.5, 1.0), iterations=200)
    sigma = float(torch.linalg.svdvals(matrix)[0])
    assert found.largest == pytest.approx(sigma, rel=1e-3)
    assert found.largest <= sigma * (1 + 1e-12)
    assert found.points == 15


@pytest.mark.parametrize("seed", range(3))
def test_a_relu_networks_constant_at_a_point_is_its_jacobians_norm(seed: int) -> None:
    field = initialise(SphereField(4), seed).double()
    z = points(1, 9, 4)
    found = lipschitz(field, z, (0.0,), iterations=200)
    assert found.largest == pytest.approx(float(exact(field, z[0]).max()), rel=5e-3)
    assert found.median == pytest.approx(float(exact(field, z[0]).median()), rel=5e-3)


def test_estimates_come_from_below_whatever_the_iterations() -> None:
    field = initialise(SphereField(5), 1).double()
    z = points(1, 1, 5)
    bound = float(exact(field, z[0]))
    found = [lipschitz(field, z, (0.0,), iterations=n).largest for n in (1, 2, 4, 8)]
    assert found == sorted(found)
    assert 0 < found[0] <= found[-1] <= bound * (1 + 1e-12)


def test_one_time_costs_one_evaluation_and_settled_iterations_stop() -> None:
    calls = []

    def field(t: Tensor, z: Tensor) -> Tensor:
        calls.append(z.shape[0])
        return 3 * z

    found = lipschitz(field, points(4, 7, 2), (0.0, 1.0, 2.0, 3.0))
    assert calls == [7] * 5, "one for each time, and one to see that the field can be differentiated"
    assert found == Lipschitz(largest=found.largest, median=found.median, points=28, iterations=2)
    assert found.largest == pytest.approx(3.0)


def test_fields_that_depend_on_time_are_asked_at_their_times() -> None:
    found = lipschitz(lambda t, z: t * z, points(3, 2, 2), (1.0, 2.0, 7.0))
    assert found.largest == pytest.approx(7.0)
    assert found.median == pytest.approx(2.0)


def test_images_are_states_too(monkeypatch: pytest.MonkeyPatch) -> None:
    field = initialise(ImageField(2, 4), 0).double()
    z = points(1, 3, 2, 4, 4)
    whole = lipschitz(field, z, (0.0,), iterations=300)
    assert whole.largest == pytest.approx(float(exact(field, z[0]).max()), rel=1e-2)
    monkeypatch.setattr(module, "ROOM", 1)
    assert lipschitz(field, z, (0.0,), iterations=300).largest == pytest.approx(whole.largest, rel=1e-2)


@pytest.mark.parametrize(
    "field",
    [lambda t, z: torch.ones_like(z), lambda t, z: nn.Parameter(torch.ones_like(z)), lambda t, z: (z - 1e3).relu()],
)
def test_a_constant_field_has_constant_zero(field: nn.Module) -> None:
    found = lipschitz(field, points(2, 3, 2), (0.0, 1.0))
    assert (found.largest, found.median) == (0.0, 0.0)


def test_a_seed_decides_the_numbers_and_the_global_generator_stays() -> None:
    field = initialise(SphereField(5), 1).double()
    z, state = points(1, 4, 5), torch.get_rng_state()
    first, same, other = (lipschitz(field, z, (0.0,), iterations=1, seed=s) for s in (0, 0, 1))
    assert first == same != other
    assert torch.equal(torch.get_rng_state(), state)


def test_nobody_elses_gradients_are_touched_and_any_grad_mode_will_do() -> None:
    field = initialise(SphereField(2), 0).double()
    plain = lipschitz(field, points(1, 4, 2), (0.0,))
    assert all(p.grad is None for p in field.parameters())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert lipschitz(field, points(1, 4, 2), (0.0,)) == plain


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="not finite"):
        lipschitz(lambda t, z: z, torch.full((1, 2, 2), torch.inf, dtype=torch.float64), (0.0,))
    with pytest.raises(UsageError, match="derivative is not finite"):
        lipschitz(lambda t, z: z.sqrt(), torch.zeros(1, 2, 2, dtype=torch.float64), (0.0,))
    with pytest.raises(UsageError, match="cannot differentiate"):
        lipschitz(lambda t, z: z.detach() * 2, points(1, 2, 2), (0.0,))


def test_what_it_proves_and_does_not_is_said() -> None:
    assert "sufficient condition" in Lipschitz.proves
    assert "lower bound" in Lipschitz.limits
