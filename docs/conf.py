"""The documentation site: `make docs`. Every page is readable on its own, as Markdown, and tutorials run when built."""

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from windermere import __version__

project, author, release = "Windermere", "The Windermere contributors", __version__
copyright = author  # what Sphinx calls it
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "constraints.txt"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
default_role = "code"

nb_execution_mode = "cache"
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True
nb_execution_raise_on_error = True
nb_execution_excludepatterns = ["*.ipynb"]

autodoc_typehints = "none"  # docstrings say it in words, and signatures would fill the page
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "Windermere"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_sidebars: dict[str, list[str]] = {"index": [], "start": [], "play": [], "reference": []}
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

ENTRY = re.compile(r"^[\w*]+(?:, [\w*]+)*: ")


def _entries(block: list[str]) -> Iterator[str]:
    """Lines of a paragraph, each with those that are indented below it."""
    entry = ""
    for line in block:
        if entry and not line.startswith(" "):
            yield entry
            entry = ""
        entry = f"{entry} {line.strip()}".strip()
    yield entry


def _as_list(block: list[str]) -> list[str]:
    """A docstring's list of arguments, which is plain English, as reStructuredText."""
    marked = []
    for entry in _entries(block):
        name, _, text = entry.partition(": ")
        marked.append(f"- **{name}**: {_escaped(text)}" if ENTRY.match(entry) else f"- {_escaped(entry)}")
    return marked


def _escaped(line: str) -> str:
    """Stars, bars and trailing underscores mean themselves, except in code."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*|]|\w_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def read_plain_english(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings here are plain English for `help()`: what of it looks like reStructuredText by chance is escaped."""
    made: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        block = [] if blank else list(group)
        if not block or block[0].startswith(">>>"):
            made += block or [""]
        elif any(line.startswith(" ") for line in block) or all(ENTRY.match(line) for line in block):
            made += _as_list(block)
        else:
            made += [_escaped(line) for line in block]
    lines[:] = [*made, ""]


def leave_no_header_empty(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The corner of a table with names on two sides is a cell: a heading without words says nothing."""
    if "body" in context:
        context["body"] = re.sub(r'<th class="head">(<p></p>)?</th>', '<td class="head"></td>', context["body"])


def setup(app: Any) -> None:
    app.connect("html-page-context", leave_no_header_empty)
    app.connect("autodoc-process-docstring", read_plain_english)
