"""Figure 3, Appendix A and the data of Appendix B, by the numbers; their figures need nothing but the tables."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.auditing.evidence.test_crossings import appendix_a
from tests.auditing.test_known_cases import Fan
from windermere.errors import NonFiniteError
from windermere.paper.studies import crossing_field, fan, sphere2
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.separability import linearly_separable, widest_line
from windermere.paper.studies.study import Study

Floats = NDArray[np.float64]


def through_csv(tables: Tables, folder: Path) -> Tables:
    folder.mkdir(exist_ok=True)
    for table, rows in tables.items():
        table.write(folder, rows)
    return Tables({table: table.read(folder) for table in tables})


def assert_drawn(study: Study, tables: Tables, folder: Path) -> None:
    (path,) = study.draw(tables, folder)
    assert path.name == f"{study.name}.png"
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# Separability.


def by_candidates(points: Floats, labels: NDArray[np.int64]) -> bool:
    """The slow reference. The order of points along a normal changes only where it is at right angles to a difference
    of two of them: normals between any two such are tried, and the differences where all points are on one line."""
    exact = [(Fraction(x), Fraction(y)) for x, y in points.tolist()]
    differences = [(b[0] - a[0], b[1] - a[1]) for a, b in product(exact, exact)]
    between = [(u[1] + v[1], -u[0] - v[0]) for u, v in product(differences, differences)]
    for normal in differences + between:
        along = [normal[0] * x + normal[1] * y for x, y in exact]
        zero = [value for value, label in zip(along, labels, strict=True) if label == 0]
        other = [value for value, label in zip(along, labels, strict=True) if label != 0]
        if max(zero) < min(other):
            return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_separability_agrees_with_trying_all_lines_also_on_small_grids_full_of_ties(seed: int) -> None:
    generator = np.random.default_rng(seed)
    points = generator.integers(0, 4, (int(generator.integers(2, 7)), 2)).astype(float)
    labels = np.array([0, 1, *generator.integers(0, 2, len(points) - 2)])
    assert linearly_separable(points, labels) == by_candidates(points, labels)


def test_separability_has_no_tolerance() -> None:
    middle = np.array([[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    labels = np.array([0, 0, 1])
    assert not linearly_separable(middle, labels)
    for nudged in (np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0)):
        assert linearly_separable(np.array([[0.0, 0.0], [2.0, 2.0], [1.0, nudged]]), labels)
    assert not linearly_separable(fan.CORNERS, fan.XOR)
    assert not linearly_separable(np.zeros((2, 2)), np.array([0, 1]))


def test_the_widest_line_has_the_classes_on_its_two_sides_at_equal_distance() -> None:
    points, labels = np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 1.0], [7.0, -3.0]]), np.array([0, 0, 1, 1])
    a, b, c = widest_line(points, labels)
    assert (a, b, c) == pytest.approx((1.0, 0.0, 2.0))


# Figure 3.


@pytest.fixture(scope="module")
def fan_tables() -> Tables:
    """All but the finest steps, which take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fan, "FINEST", -3.5)
        return fan.compute_fan(quick=True)


def test_the_fan_is_equation_4_as_the_audits_tests_have_it() -> None:
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    time = torch.zeros(())
    torch.testing.assert_close(fan.fan(time, z), Fan()(time, z))


@pytest.mark.parametrize(
    ("exponent", "separable"),
    [(-2.25, True), (-2.5, True), (-2.75, True), (-3.0, False), (-3.25, False), (-3.5, False)],
)
def test_the_fan_is_separable_at_ten_to_the_minus_two_and_a_half_and_not_from_minus_three_on(
    exponent: float, separable: bool, fan_tables: Tables
) -> None:
    (row,) = [row for row in fan_tables[fan.FAN_TABLE] if row.exponent == exponent]
    assert row.outcome == ("separable" if separable else "not separable")
    assert row.crossings == 0
    assert row.steps == int(np.ceil(10**-exponent - 1e-6))


def test_the_fan_blows_up_at_steps_of_a_hundredth_and_more_and_these_are_marked_apart(fan_tables: Tables) -> None:
    outcomes = {row.exponent: row.outcome for row in fan_tables[fan.FAN_TABLE] if row.method == "euler"}
    assert [exponent for exponent, outcome in outcomes.items() if outcome == "blows up"] == [-1.5, -1.75, -2.0]
    with pytest.raises(NonFiniteError):
        fan.walk(fan.fan, fan.CORNERS, fan._euler(-2.0), 1.0)


def test_the_ladder_of_steps_goes_down_to_ten_to_the_minus_four_and_a_half() -> None:
    assert fan.exponents(quick=True) == [-1.5 - i / 4 for i in range(13)]
    assert fan.exponents(quick=False) == [-1.5 - i / 8 for i in range(25)]
    assert fan._after_euler(-4.0).outcome == "not separable"


def test_the_fan_of_the_flow_itself_is_not_separable(fan_tables: Tables) -> None:
    (flow,) = [row for row in fan_tables[fan.FAN_TABLE] if row.method == "dopri54"]
    assert (flow.outcome, flow.crossings) == ("not separable", 0)


def test_the_line_drawn_through_the_fan_separates_its_end_points(fan_tables: Tables) -> None:
    (line,) = fan_tables[fan.FAN_LINES]
    ends = fan.walk(fan.fan, fan.CORNERS, fan._euler(line.exponent), 1.0)[-1]
    beyond = ends @ np.array([line.a, line.b]) > line.c
    assert beyond.tolist() == (fan.XOR == 1).tolist()


def test_all_of_the_fans_claims_hold_and_it_is_drawn_from_its_csv_files(tmp_path: Path, fan_tables: Tables) -> None:
    tables = through_csv(fan_tables, tmp_path)
    assert [finding.agrees for finding in fan.FAN.findings(tables)] == [True, True, True]
    assert "not separable from 10^-3 to 10^-3.5" in fan.FAN.findings(tables)[2].ours
    assert_drawn(fan.FAN, tables, tmp_path)


# Appendix A.


@pytest.fixture(scope="module")
def crossing_tables() -> Tables:
    return crossing_field.compute_crossings(quick=True)


def test_the_field_is_appendix_as_as_the_audits_tests_have_it() -> None:
    z = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 1.0]) + 0.1
    edges = torch.tensor([[x, 0.5] for x in (0.0, 1.0, 1.25, 1.75, 2.0, 2.5)])
    z = torch.cat([z, edges])
    torch.testing.assert_close(crossing_field.crossing_field(torch.zeros(()), z), appendix_a(z))


@pytest.mark.parametrize(
    ("second", "counts"),
    [(None, (0, 24, 0)), (crossing_field.FROM_15, (81, 96, 0)), (crossing_field.FROM_14, (81, 128, 22))],
)
def test_appendix_as_crossings_are_counted_at_1_a_half_and_a_thirty_second(
    second: float | None, counts: tuple[int, ...], crossing_tables: Tables
) -> None:
    found = {row.step: row.crossings for row in crossing_tables[crossing_field.CROSSINGS] if row.second == second}
    assert (found[1.0], found[0.5], found[2.0**-5]) == counts


def test_all_of_appendix_as_claims_hold_and_it_is_drawn_from_its_csv_files(
    tmp_path: Path, crossing_tables: Tables
) -> None:
    tables = through_csv(crossing_tables, tmp_path)
    findings = crossing_field.CROSSING_FIELD.findings(tables)
    assert [finding.agrees for finding in findings] == [True, True, True]
    assert findings[0].ours == "0, 24 and 0 crossings at h = 1, 1/2 and 1/32"
    assert findings[1].ours.startswith("81, 96 and 0 crossings")
    assert_drawn(crossing_field.CROSSING_FIELD, tables, tmp_path)


# Appendix B.


def test_a_shell_ends_where_the_next_point_outwards_is_of_another_class() -> None:
    points, labels = np.array([[0.0, 3.0], [1.0, 0.0], [-2.0, 0.0], [0.0, -4.0]]), np.array([1, 0, 0, 0])
    found = [(row.label, row.points, row.inner, row.outer) for row in sphere2.shells("test", points, labels)]
    assert found == [(0, 2, 1.0, 2.0), (1, 1, 3.0, 3.0), (0, 1, 4.0, 4.0)]


def test_sphere2_is_three_rings_and_it_is_drawn_from_its_csv_files(tmp_path: Path) -> None:
    tables = through_csv(sphere2.compute(quick=False), tmp_path)
    (finding,) = sphere2.SPHERE2.findings(tables)
    assert finding.agrees is True
    assert finding.ours.count("1000 points of class 1 at radii 0.250 to 0.300") == 1
    assert_drawn(sphere2.SPHERE2, tables, tmp_path)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1], [0, 1, 0, 1]])
def test_other_rings_are_not_sphere2(labels: list[int]) -> None:
    rows = [
        sphere2.ShellRow(split=split, label=label, points=9, inner=float(ring), outer=ring + 0.5)
        for split in ("training", "test")
        for ring, label in enumerate(labels)
    ]
    assert [finding.agrees for finding in sphere2.findings(Tables({sphere2.SHELLS: rows}))] == [False]
