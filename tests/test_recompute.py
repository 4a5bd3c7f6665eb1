"""Numbers on the pages are those of the committed tables, by code that shares nothing with what wrote them."""

import ast
from pathlib import Path

import pytest
from scipy import stats

from benchmarks import recompute
from tests.processes import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="a source distribution has no results")


def test_every_recomputed_number_stands_on_its_page() -> None:
    found = list(recompute.checked())
    assert [one.text for one in found if not one.found] == []
    assert {one.page for one in found} >= {"README.md", "docs/results.md", "docs/adaptation.md"}
    assert sum(one.numbers for one in found) >= 50


def test_a_number_that_is_not_on_its_page_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ("README.md", lambda: iter([("up to {:.1f} points", 99.9)]))
    monkeypatch.setattr(recompute, "PAGES", [wrong])
    assert recompute.main() == 1
    assert "README.md does not say: up to 99.9 points" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["benchmarks.recompute", *recompute.FILES])
def test_nothing_of_windermere_is_imported(name: str) -> None:
    tree = ast.parse((ROOT / Path(*name.split("."))).with_suffix(".py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(module.startswith("windermere") for module in imported)


def test_an_analysis_of_variance_is_scipys() -> None:
    groups = [[0.9, 0.92, 0.97], [0.95, 0.99, 0.94, 0.96], [0.91, 0.9, 0.98], [0.99, 1.0, 0.96, 0.97]]
    assert recompute.variance_p(groups) == pytest.approx(stats.f_oneway(*groups).pvalue, rel=1e-4)


@pytest.mark.parametrize(("t", "freedom"), [(0.0, 4), (2.94, 4.2), (-1.7, 2.63), (8.9, 6)])
def test_p_values_are_scipys(t: float, freedom: float) -> None:
    assert recompute.p_value(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-4)
