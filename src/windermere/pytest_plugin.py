"""A plugin of pytest's: `assert_flow`, a fixture that fails a test whose model is no flow, and leaves the report.

Every pytest run where Windermere is installed imports this file, so that PyTorch is imported only when a test asks.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from windermere.auditing import Verdict

FOLDER = "windermere_reports"
"""The option's name, in an ini file and for `config.getoption`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "the folder for reports of models that assert_flow fails (default: the test's own temporary folder)"
    parser.getgroup("windermere").addoption("--windermere-reports", dest=FOLDER, metavar="FOLDER", help=help_)
    parser.addini(FOLDER, help_)


@pytest.fixture
def assert_flow(request: pytest.FixtureRequest) -> "FlowAssertion":
    """Call it with a model and data: the test fails unless the audit's outcome is FLOW."""
    return FlowAssertion(request)


class FlowAssertion:
    """`assert_flow(model, data)` of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request, self.failed = request, 0

    def __call__(self, model: Any, data: Any, *, allow: Iterable[str] = (), **options: Any) -> "Verdict":
        """Audit the model and return the verdict, where that is FLOW or one of those that `allow` names, such as
        ("COARSE",). Else the test fails with the verdict's sentence and advice, and leaves `.html`, `.json` and `.png`.

        All other arguments are `windermere.audit`'s, such as `metric`.
        """
        __tracebackhide__ = True
        from windermere.auditing import audit

        allowed = _outcomes(allow)
        verdict = audit(model, data, **options)
        if verdict.outcome not in allowed:
            report = self._leave(verdict)
            raise AssertionError(f"{verdict.sentence}\n{verdict.recommendation}\nreport: {report}, also .json and .png")
        return verdict

    def _leave(self, verdict: "Verdict") -> Path:
        """The report's page, beside which its JSON and its figure lie."""
        self.failed += 1
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        again = f"-{self.failed}" if self.failed > 1 else ""
        test = self.request.node.nodeid
        path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', test).strip('-')}{again}.html"
        for suffix in (".json", ".png", ".html"):
            verdict.save(path.with_suffix(suffix), name=test)
        return path

    def _folder(self) -> Path:
        """As the command line says, or the ini file, relative to the project; else the test's own."""
        config = self.request.config
        named = config.getoption(FOLDER) or config.getini(FOLDER)
        return config.rootpath / named if named else Path(self.request.getfixturevalue("tmp_path"))


def _outcomes(allow: Iterable[str]) -> set[str]:
    """FLOW and what else is allowed, which are outcomes."""
    from windermere.auditing import Outcome
    from windermere.errors import UsageError

    names = {allow} if isinstance(allow, str) else set(allow)
    if unknown := names - set(Outcome):
        raise UsageError(f"allow names outcomes ({', '.join(Outcome)}), and {', '.join(sorted(unknown))} is none")
    return {Outcome.FLOW, *names}
