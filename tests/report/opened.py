"""Pages that are open in a real Chromium."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

NAMES = (os.environ.get("WINDERMERE_CHROMIUM") or "", "chromium", "chromium-browser", "google-chrome")
FOUND = next((found for name in NAMES if name and (found := shutil.which(name))), None)
needs_chromium = pytest.mark.skipif(
    FOUND is None, reason="no Chromium here: install one, or name it in WINDERMERE_CHROMIUM"
)
READY = "html[data-ready=true]"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""After these a page knows the sizes of its parts."""


class Opened:
    """A page that is open, with what it asked for and complained of."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.file, self.asked, self.complaints = file, list[str](), list[str]()
        self.context.route("**/*", self._route)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector(READY, state="attached")

    def _route(self, route: Any) -> None:
        if route.request.url == self.file.as_uri():
            route.continue_()
        else:
            self.asked.append(route.request.url)
            route.abort()

    def pixels(self, picture: int) -> Any:
        """The colours on a canvas of its final size, after what it was asked to draw."""
        self.page.evaluate(TWO_FRAMES)
        self.page.evaluate("page.player.redraw()")
        return self.page.evaluate(f"document.querySelectorAll('canvas')[{picture}].toDataURL()")

    def close(self) -> None:
        self.context.close()
        assert self.asked == []
        assert self.complaints == []
