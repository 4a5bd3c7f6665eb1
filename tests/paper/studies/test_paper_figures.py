"""Figures for print: fonts embedded, of the text's width, the same each time, from committed tables alone."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.pictures import size
from tests.processes import ROOT
from windermere.errors import RunError
from windermere.paper.figures.camera_ready import WIDTH, for_print, letter, print_figure, save_pdf, thin
from windermere.paper.studies import paper_figures
from windermere.paper.studies.paper_figures import FIGURES, SHEET, draw_paper_figures
from windermere.paper.studies.printing import Results

RESULTS = ROOT / "results"
here = pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution has no results")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three of them, which are drawn soon."""
    names = ["figure4", "table1", "appendix-a-field"]
    monkeypatch.setattr(paper_figures, "FIGURES", {name: FIGURES[name] for name in names})
    return names


@here
def test_they_are_pdfs_with_embedded_fonts_and_no_date_the_same_each_time_and_one_page_of_all(
    few: list[str], tmp_path: Path
) -> None:
    one, two = (draw_paper_figures(RESULTS, tmp_path / name) for name in ("one", "two"))
    assert [path.name for path in one] == [*(f"{name}.pdf" for name in few), SHEET]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    for path in one[:-1]:
        written = path.read_bytes()
        assert written.startswith(b"%PDF")
        assert b"/FontFile2" in written
        assert b"/Type3" not in written
        assert b"CreationDate" not in written
        assert len(written) < 100_000
    width = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", one[0].read_bytes())
    assert width is not None
    assert float(width[1]) == 72 * WIDTH
    assert size(one[-1])[0] > 900


@here
def test_what_is_committed_is_one_pdf_for_each_and_no_figure_is_large() -> None:
    pdfs = {path.stem: path.stat().st_size for path in (RESULTS / "paper").glob("*.pdf")}
    assert pdfs.keys() == FIGURES.keys()
    assert max(pdfs.values()) < 100_000
    assert max(path.stat().st_size for path in RESULTS.rglob("*.png")) < 150_000


def test_a_study_that_was_not_run_is_named_and_nothing_is_written(few: list[str], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no table of 'sphere2-fixed': run that study first"):
        draw_paper_figures(tmp_path, tmp_path / "paper")
    assert list(tmp_path.iterdir()) == []


@here
def test_cifar10_is_shown_at_the_papers_learning_rate() -> None:
    results = Results(RESULTS)
    assert [grid.name for grid in results.grids("cifar10-fixed")] == [
        f"CIFAR-10 trained with {method}, learning rate 1e-3" for method in ("euler", "rk4")
    ]
    assert {run.first.lr for run in results.adapted("step-adaptation-cifar10").values()} == {1e-3}


@for_print
def some_figure() -> Figure:
    figure = print_figure(2.0)
    for axes in figure.subplots(1, 3):
        axes.plot([0, 1], [1, 0], "o-", linewidth=2.0, markersize=8.0)
        axes.set_title("a long title")
    return figure


def test_panels_have_letters_and_titles_as_far_as_there_are_any() -> None:
    panels = some_figure().axes
    letter(panels, ["first"])
    assert [axes.get_title(loc="left") for axes in panels] == ["(a) first", "(b)", "(c)"]
    assert {axes.get_title() for axes in panels} == {""}


def test_lines_and_marks_are_made_thinner_together(tmp_path: Path) -> None:
    figure = some_figure()
    thin(figure.axes, 0.5)
    (line,) = figure.axes[0].lines
    assert (line.get_linewidth(), line.get_markersize()) == (1.0, 4.0)
    save_pdf(figure, tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
