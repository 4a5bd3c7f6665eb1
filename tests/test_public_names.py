"""What a reader of `help(windermere)` meets."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import windermere as wm
from tests.processes import surroundings

NAMES = [name for name in wm.__all__ if not name.startswith("_")]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(wm, name))]
EXPLAINED = [name for name in NAMES if name not in ("METHODS", "Solver", "State")]
"""Types and a table, which have no docstring of their own."""


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_public_name_says_what_it_is_and_its_example_is_true(name: str) -> None:
    value = getattr(wm, name)
    assert len(inspect.getdoc(value) or "") > 60
    assert ".md" not in (inspect.getdoc(value) or "")  # who has a wheel has no page of the clone
    (example,) = doctest.DocTestFinder(recurse=False).find(value, name, module=sys.modules[value.__module__])
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_says_what_it_does(name: str) -> None:
    for method, value in vars(getattr(wm, name)).items():
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{method}"
            assert ".md" not in (inspect.getdoc(value) or "")


def test_the_package_names_all_that_it_exports() -> None:
    assert all(f"`{name}`" in (wm.__doc__ or "") for name in NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'windermere' has no attribute 'lod_run'"):
        _ = wm.lod_run  # type: ignore[attr-defined]


def test_a_name_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    """Python would say "cannot import name" of an AttributeError, and lose what it was about."""
    (tmp_path / "torch.py").write_text("raise AttributeError('no such thing in this PyTorch')")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom windermere import audit"
    failed = subprocess.run([sys.executable, "-c", script], env=surroundings(), capture_output=True, text=True)
    why = "ImportError: windermere.audit cannot be imported: no such thing in this PyTorch"
    assert failed.stderr.splitlines()[-1] == why
