"""Explicit Runge-Kutta methods as frozen data that check themselves when made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import prod
from types import MappingProxyType

from windermere.errors import UnknownNameError, UsageError

Coefficients = tuple[float, ...]
Tree = tuple["Tree", ...]
"""A rooted tree: the tuple of its root's subtrees. A leaf is ()."""

ROUNDING = 1e-13
"""What an order condition may miss its value by: the coefficients are doubles."""


@dataclass(frozen=True, kw_only=True)
class Tableau:
    """A Butcher tableau. Stage i is k_i = f(t + c_i h, z + h sum_j a_ij k_j); the step is z + h sum_i b_i k_i."""

    name: str
    order: int
    """Order of the global error of the propagated solution, weights `b`."""
    a: tuple[Coefficients, ...]
    """Row i holds the i coefficients before the diagonal; row 0 is empty."""
    b: Coefficients
    c: Coefficients
    b_embedded: Coefficients | None = None
    """Weights of the embedded solution, whose difference to `b` estimates the local error."""
    embedded_order: int = 0
    dense: tuple[Coefficients, ...] = ()
    """The continuous extension. Row i: stage i's weight at the fraction s of a step, as coefficients of s, s^2, ...
    Without one, the parabola through the step's two ends with the slope of its first stage."""
    dense_order: int = 0

    def __post_init__(self) -> None:
        if not self.dense:
            object.__setattr__(self, "dense", _parabola(self.b))
            object.__setattr__(self, "dense_order", min(self.order, 2))
        _check_shape(self)
        _check_order(self, self.b, self.order)
        if self.b_embedded is not None:
            _check_order(self, self.b_embedded, self.embedded_order)
        _check_dense(self)

    @property
    def stages(self) -> int:
        return len(self.b)

    @cached_property
    def propagating(self) -> int:
        """Stages up to the last one with a weight: what a step costs without an error estimate."""
        return max(i for i, weight in enumerate(self.b) if weight != 0.0) + 1

    @cached_property
    def interpolating(self) -> int:
        """Stages up to the last one that counts within a step: what a fixed step costs whose inside is asked for."""
        return max(self.propagating, *(i + 1 for i, row in enumerate(self.dense) if any(row)))

    @cached_property
    def fsal(self) -> bool:
        """First same as last: the last stage is the field at the step's end, so the next step may reuse it."""
        return self.c[-1] == 1.0 and self.a[-1] == self.b[:-1] and self.b[-1] == 0.0 and self.stages > 1

    @cached_property
    def error_weights(self) -> Coefficients:
        """Weights e with h sum_i e_i k_i the estimated local error."""
        if self.b_embedded is None:
            names = " or ".join(adaptive_names())
            raise UsageError(f"'{self.name}' has no error estimate: give it a step, not a tolerance, or take {names}")
        return tuple(b - e for b, e in zip(self.b, self.b_embedded, strict=True))


def _check_shape(tableau: Tableau) -> None:
    name, stages = tableau.name, tableau.stages
    if len(tableau.c) != stages or [len(row) for row in tableau.a] != list(range(stages)):
        raise UsageError(f"tableau '{name}' is not explicit with {stages} stages")
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        if abs(sum(row) - c) > ROUNDING:
            raise UsageError(f"tableau '{name}': row {i} of a sums to {sum(row)}, but c is {c}")
    if tableau.b_embedded is not None and len(tableau.b_embedded) != stages:
        raise UsageError(f"tableau '{name}': the embedded weights are not {stages}")


def _check_dense(tableau: Tableau) -> None:
    """At a step's end the weights are b; before, sum_i b_i(s) phi_i(tree) = s^nodes / gamma(tree), for all s."""
    name = tableau.name
    if len(tableau.dense) != tableau.stages or len({len(row) for row in tableau.dense}) != 1:
        raise UsageError(f"tableau '{name}': the weights within a step are not {tableau.stages} rows of one length")
    if any(abs(sum(row) - b) > 10 * ROUNDING for row, b in zip(tableau.dense, tableau.b, strict=True)):
        raise UsageError(f"tableau '{name}': the weights within a step do not end at b")
    for nodes in range(1, tableau.dense_order + 1):
        for tree in trees(nodes):
            phi = _elementary_weights(tableau, tree)
            for power, column in enumerate(zip(*tableau.dense, strict=True), start=1):
                got = sum(w * p for w, p in zip(column, phi, strict=True))
                if abs(got - (power == nodes) / _density(tree)) > 10 * ROUNDING:
                    raise UsageError(f"tableau '{name}' misses order {tableau.dense_order} within a step: {tree}")


def _parabola(b: Coefficients) -> tuple[Coefficients, ...]:
    return ((1.0, b[0] - 1.0), *((0.0, weight) for weight in b[1:]))


def _hermite(b: Coefficients, bend: Coefficients | None = None) -> tuple[Coefficients, ...]:
    """For a method whose last stage is the field at the step's end: the cubic that has both ends and both slopes, and
    s^2 (1 - s)^2 times further weights, which change neither."""
    rows = [[0.0, 3 * w + d, -2 * w - 2 * d, d] for w, d in zip(b, bend or (0.0,) * len(b), strict=True)]
    rows[0] = [x + y for x, y in zip(rows[0], (1.0, -2.0, 1.0, 0.0), strict=True)]
    rows[-1] = [x + y for x, y in zip(rows[-1], (0.0, -1.0, 1.0, 0.0), strict=True)]
    return tuple(map(tuple, rows))


def _check_order(tableau: Tableau, weights: Coefficients, order: int) -> None:
    """The order conditions of Hairer, Norsett, Wanner I, theorem II.2.13: sum_i b_i phi_i(tree) = 1 / gamma(tree)."""
    for nodes in range(1, order + 1):
        for tree in trees(nodes):
            got = sum(w * phi for w, phi in zip(weights, _elementary_weights(tableau, tree), strict=True))
            if abs(got - 1 / _density(tree)) > ROUNDING:
                raise UsageError(f"tableau '{tableau.name}' misses order {order}: condition {tree} gives {got}")


def trees(nodes: int) -> Iterator[Tree]:
    """All rooted trees with so many nodes: 1, 1, 2, 4, 9, 20, ..."""
    yield from (tuple(forest) for forest in _forests(nodes - 1, nodes - 1))


def _forests(nodes: int, largest: int) -> Iterator[list[Tree]]:
    """All multisets of trees with `nodes` nodes in total, none with more than `largest`."""
    if nodes == 0:
        yield []
        return
    for size in range(min(nodes, largest), 0, -1):
        for count in range(1, nodes // size + 1):
            for chosen in combinations_with_replacement(list(trees(size)), count):
                for rest in _forests(nodes - size * count, size - 1):
                    yield [*chosen, *rest]


def _size(tree: Tree) -> int:
    return 1 + sum(map(_size, tree))


def _density(tree: Tree) -> int:
    return _size(tree) * prod(map(_density, tree))


def _elementary_weights(tableau: Tableau, tree: Tree) -> list[float]:
    """phi_i(tree) = product over subtrees of sum_j a_ij phi_j(subtree)."""
    below = [_elementary_weights(tableau, subtree) for subtree in tree]
    return [prod(sum(a * phi[j] for j, a in enumerate(row)) for phi in below) for row in tableau.a]


EULER = Tableau(name="euler", order=1, a=((),), b=(1.0,), c=(0.0,))
MIDPOINT = Tableau(name="midpoint", order=2, a=((), (1 / 2,)), b=(0.0, 1.0), c=(0.0, 1 / 2))
HEUN = Tableau(name="heun", order=2, a=((), (1.0,)), b=(1 / 2, 1 / 2), c=(0.0, 1.0))
# Heun 1900: torchdiffeq's "heun3".
HEUN3 = Tableau(name="heun3", order=3, a=((), (1 / 3,), (0.0, 2 / 3)), b=(1 / 4, 0.0, 3 / 4), c=(0.0, 1 / 3, 2 / 3))
RK4 = Tableau(
    name="rk4",
    order=4,
    a=((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 1 / 2, 1 / 2, 1.0),
    dense=((1.0, -3 / 2, 2 / 3), (0.0, 1.0, -2 / 3), (0.0, 1.0, -2 / 3), (0.0, -1 / 2, 2 / 3)),
    dense_order=3,
)
# Kutta's 3/8 rule, which torchdiffeq calls "rk4".
RK4_38 = Tableau(
    name="rk4_38",
    order=4,
    a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
    c=(0.0, 1 / 3, 2 / 3, 1.0),
    dense=((1.0, -15 / 8, 1.0), (0.0, 15 / 8, -3 / 2), (0.0, 3 / 8, 0.0), (0.0, -3 / 8, 1 / 2)),
    dense_order=3,
)
# Heun's method with Euler's as its error estimate: torchdiffeq's "adaptive_heun". The second stage is the field at
# Euler's solution, so this is not FSAL.
HEUN21 = Tableau(name="heun21", order=2, a=HEUN.a, b=HEUN.b, c=HEUN.c, b_embedded=(1.0, 0.0), embedded_order=1)
# Fehlberg 1969, RK1(2). The third stage is the field at the *embedded* solution, so this is not FSAL.
FEHLBERG21 = Tableau(
    name="fehlberg21",
    order=2,
    a=((), (1 / 2,), (1 / 256, 255 / 256)),
    b=(1 / 512, 255 / 256, 1 / 512),
    c=(0.0, 1 / 2, 1.0),
    b_embedded=(1 / 256, 255 / 256, 0.0),
    embedded_order=1,
)
# Bogacki and Shampine 1989.
_BOSH_B = (2 / 9, 1 / 3, 4 / 9, 0.0)
BOSH32 = Tableau(
    name="bosh32",
    order=3,
    a=((), (1 / 2,), (0.0, 3 / 4), _BOSH_B[:-1]),
    b=_BOSH_B,
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    b_embedded=(7 / 24, 1 / 4, 1 / 3, 1 / 8),
    embedded_order=2,
    dense=_hermite(_BOSH_B),
    dense_order=3,
)
# Dormand and Prince 1980, with Shampine's embedded weights (1986) as in torchdiffeq, torchode and diffrax, so that
# tolerances mean the same here as there. (SciPy and MATLAB use the original ones.) The continuous extension is that of
# Hairer, Norsett, Wanner I, section II.6.
_DOPRI_B = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0)
_DOPRI_BEND = (
    -12715105075 / 11282082432,
    0.0,
    87487479700 / 32700410799,
    -10690763975 / 1880347072,
    701980252875 / 199316789632,
    -1453857185 / 822651844,
    69997945 / 29380423,
)
DOPRI54 = Tableau(
    name="dopri54",
    order=5,
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _DOPRI_B[:-1],
    ),
    b=_DOPRI_B,
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    b_embedded=(1951 / 21600, 0.0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60),
    embedded_order=4,
    dense=_hermite(_DOPRI_B, _DOPRI_BEND),
    dense_order=4,
)
# Tsitouras 2011; the embedded weights are b minus the published error weights. His interpolant has both slopes, too.
_TSIT_B = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
    0.0,
)
_TSIT_ERROR = (
    -0.001780011052225777,
    -0.0008164344596567469,
    0.007880878010261995,
    -0.1447110071732629,
    0.5823571654525552,
    -0.45808210592918697,
    1 / 66,
)
_TSIT_BEND = (
    -1.0530884977290216,
    0.1017,
    2.490627285651253,
    -16.548102889244902,
    47.37952196281928,
    -34.87065786149661,
    2.5,
)
TSIT54 = Tableau(
    name="tsit54",
    order=5,
    a=(
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        _TSIT_B[:-1],
    ),
    b=_TSIT_B,
    c=(0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    b_embedded=tuple(b - e for b, e in zip(_TSIT_B, _TSIT_ERROR, strict=True)),
    embedded_order=4,
    dense=_hermite(_TSIT_B, _TSIT_BEND),
    dense_order=4,
)

METHODS: Mapping[str, Tableau] = MappingProxyType(
    {t.name: t for t in (EULER, MIDPOINT, HEUN, HEUN3, RK4, RK4_38, FEHLBERG21, HEUN21, BOSH32, DOPRI54, TSIT54)}
)


def tableau(method: str) -> Tableau:
    """The tableau of a method by its name."""
    if not isinstance(method, str) or method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    return METHODS[method]


def adaptive_names() -> list[str]:
    """The methods with an error estimate."""
    return [name for name, t in METHODS.items() if t.b_embedded is not None]
