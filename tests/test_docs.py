"""The pages that a reader meets: links lead somewhere, and code is Python."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
]
CODE = re.compile(r"^```(\w*|{[\w-]+})\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_figure_of_a_page_is_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text())):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_compiles(page: Path) -> None:
    for language, code in CODE.findall(page.read_text()):
        if language == "python":
            compile(code, page.name, "exec")


def test_the_gallery_shows_every_figure_of_the_results() -> None:
    page = (ROOT / "docs/gallery.md").read_text()
    figures = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("results/**/*.png") if "runs" not in path.parts]
    assert not [name for name in figures if not name.endswith("-seeds.png") and f"(../{name})" not in page]
