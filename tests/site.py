"""Tries a built site in Chromium: axe on every page, on a desk and in the dark on a phone, and nothing too wide.

`make try-docs` runs it on docs/_build/html. It ends with what axe found, and fails if that was anything.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from tests.report.opened import FOUND

SCREENS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1400, "light"), (400, "dark"))
SETTLED = 400
"""Milliseconds after which the theme has made regions that scroll reachable by the keyboard."""


def complaints(page: Any, axe: Any) -> list[str]:
    """What is wrong with an open page, each thing once."""
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    told = [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return list(dict.fromkeys([*told, *(["wider than the screen"] if wide else [])]))


def main(folder: Path) -> int:
    pages = [page for page in sorted(folder.rglob("*.html")) if "_static" not in page.parts]
    wrong = defaultdict[str, list[str]](list)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        for width, scheme in SCREENS:
            open_page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for page in pages:
                open_page.goto(page.as_uri())
                open_page.wait_for_timeout(SETTLED)
                for each in complaints(open_page, Axe()):
                    wrong[each].append(f"{page.relative_to(folder)} ({width} pixels, {scheme})")
        browser.close()
    for each, places in wrong.items():
        print(f"{each}\n    on {len(places)} pages, such as {places[0]}")
    print(f"{len(pages)} pages, {len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    if FOUND is None:
        sys.exit("no Chromium here: install one, or name it in WINDERMERE_CHROMIUM")
    sys.exit(main(Path(sys.argv[1]).resolve()))
