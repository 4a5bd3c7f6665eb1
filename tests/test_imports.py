"""What is imported, and when: asked of one fresh Python, step by step, since PyTorch alone takes over a second."""

import json

import pytest

import windermere as wm
from tests.processes import answer

NAMES = [name for name in wm.__all__ if not name.startswith("_")]
DRAWING = ("matplotlib", "typer", "rich", "windermere.paper", "windermere.cli")
LIBRARIES = ("torchdiffeq", "torchdyn", "torchode", "diffrax", "jax")
ROOMS = ["adaptation", "auditing", "checks", "errors", "fast", "nn", "records", "report", "solvers"]
STEPS = f"""
import json, sys

def tell(**what):
    print(json.dumps(what))

def loaded(names):
    return [name for name in names if name in sys.modules]

import windermere
tell(facade=[dir(windermere) != [], *loaded(["torch"])])
tell(seen=[{{*windermere.__all__}} <= {{*dir(windermere)}}, "audit" in vars(windermere)])
from windermere import {", ".join(name for name in NAMES if name != "load_run")}  # which is the paper's
tell(drawing=loaded({DRAWING}))
import torch
from windermere.auditing.adapters import find_subject
tell(subject=find_subject(torch.nn.Linear(2, 2), torch.zeros(3, 2)), libraries=loaded({LIBRARIES}))
import pydoc
from windermere import *
tell(missing=[name for name in windermere.__all__ if name not in globals()])
tell(page=pydoc.plain(pydoc.render_doc(windermere)))
import windermere.paper.studies.registry, windermere.report.audit_figure
tell(pyplot=loaded(["matplotlib.pyplot"]))
reached = []
for room in {ROOMS}:  # each from a library that is imported anew
    for name in [name for name in sys.modules if name.partition(".")[0] == "windermere"]:
        del sys.modules[name]
    import windermere
    reached.append(getattr(windermere, room).__name__)
tell(reached=reached)
"""


@pytest.fixture(scope="module")
def told() -> dict[str, object]:
    return {name: value for line in answer(STEPS).splitlines() for name, value in json.loads(line).items()}


def test_the_facade_alone_loads_no_pytorch(told: dict[str, object]) -> None:
    assert told["facade"] == [True]


def test_all_public_names_are_seen_before_they_are_imported(told: dict[str, object]) -> None:
    assert told["seen"] == [True, False]


def test_importing_the_library_loads_no_drawing_no_terminal_and_nothing_of_the_paper(told: dict[str, object]) -> None:
    assert told["drawing"] == []


def test_looking_for_a_models_library_imports_none(told: dict[str, object]) -> None:
    assert (told["subject"], told["libraries"]) == (None, [])


def test_a_star_and_help_find_every_public_name(told: dict[str, object]) -> None:
    assert told["missing"] == []
    explained = str(told["page"]).split("PACKAGE CONTENTS")[1]  # behind the docstring, which has them all
    assert not [name for name in NAMES if name not in explained]


def test_drawing_never_imports_pyplot(told: dict[str, object]) -> None:
    assert told["pyplot"] == []


def test_the_librarys_rooms_need_no_import_of_their_own(told: dict[str, object]) -> None:
    assert told["reached"] == [f"windermere.{room}" for room in ROOMS]
