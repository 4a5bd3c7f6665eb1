"""What SECURITY.md promises, as far as no test beside the code holds it.

Beside the code are: downloads and their digests (`tests/paper/data`), checkpoints of other runs and damaged files
(`tests/paper/training/test_resume.py`, `tests/fuzz`), kills (`tests/records`), links in a run's folder (there, and in
`tests/cli/test_files.py`), and compiled code that another user could have written (`tests/fast/test_native_cache.py`,
`tests/fast/test_native_users.py`).
"""

import ast
import json
import os
import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import nn

import windermere
from tests.auditing.test_known_cases import rotation_verdict
from tests.cli.commands import QUICK
from tests.fuzz.commands import a_folder, asked
from windermere.cli.report import page_of
from windermere.errors import RunError, UsageError
from windermere.records import read_tensors

SOURCES = sorted(Path(windermere.__path__[0]).rglob("*.py"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`${alert(1)}"


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_that_could_run_what_it_reads_is_called_anywhere() -> None:
    """No unpickling, no `eval`, and none of PyTorch's collectives that pickle objects. Ray's transport pickles, and
    SECURITY.md says so."""
    running = ("eval", "exec", "pickle.load", "pickle.loads", "np.load", "joblib.load", "yaml.load", "shelve.open")
    objects = ("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list")
    found = [(path.name, name) for path in SOURCES for name, _ in calls(path) if name in running]
    assert found == []
    assert not [name for path in SOURCES for name, _ in calls(path) if name.rpartition(".")[2] in objects]
    loads = [ast.unparse(call) for path in SOURCES for name, call in calls(path) if name == "torch.load"]
    assert len(loads) == 1
    assert all("weights_only=True" in call for call in loads)


class Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.place),))


def test_a_pickle_in_the_place_of_a_checkpoint_is_refused_and_not_run(tmp_path: Path) -> None:
    place = tmp_path / "exploded"
    (tmp_path / "checkpoint.safetensors").write_bytes(pickle.dumps(Bomb(place)))
    with pytest.raises(RunError, match="is damaged"):
        read_tensors(tmp_path / "checkpoint.safetensors")
    assert not place.exists()


def test_a_lightning_checkpoint_that_holds_code_is_refused_and_not_run(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from windermere.adaptation.lightning import install_adapted

    place = tmp_path / "exploded"
    torch.save({"callbacks": {}, "hyper_parameters": Bomb(place)}, tmp_path / "last.ckpt")
    with pytest.raises(UsageError, match="reading it may run code"):
        install_adapted(nn.Linear(2, 2), tmp_path / "last.ckpt")
    assert not place.exists()


def hostile(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: hostile(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("kept", [("kind", "outcome"), ("kind",), ()], ids=str)
def test_what_a_saved_verdict_says_is_text_in_its_page(kept: tuple[str, ...]) -> None:
    """Neither a tag nor the end of the script that holds the data, wherever a string stands."""
    values = json.loads(json.dumps(rotation_verdict(2).to_dict()))
    record = {**hostile(values), **{name: values[name] for name in kept}, "name": HOSTILE, "provenance": {"x": HOSTILE}}
    page = page_of({"verdicts": [record], "title": HOSTILE, "lead": HOSTILE})
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == page_of({"verdicts": [{**values, "name": "a"}]}).count("<script")
    assert page.count("</script") == page.count("<script")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_no_command_writes_through_a_link() -> None:
    with a_folder() as folder:
        (folder / "precious").write_text("1234")
        (folder / "verdict.json").write_text(json.dumps(rotation_verdict(2, evidence=False).to_dict()))
        assert asked("train", *QUICK, "--out", "run").code == 0
        for name in ("page.html", "figure.png"):
            (folder / name).symlink_to("precious")
        commands: list[tuple[object, ...]] = [
            ("report", "verdict.json", "--out", "page.html"),
            ("audit", "run", "--samples", 10, "--html", "page.html"),
            ("audit", "run", "--samples", 10, "--figure", "figure.png"),
            ("study", "summary", "--results", ".", "--page", "page.html"),
        ]
        for command in commands:
            answer = asked(*command)
            assert answer.code == 1, (command, answer)
            assert "a link" in answer.err, (command, answer)
        assert (folder / "precious").read_text() == "1234"
        assert (folder / "page.html").is_symlink()


def test_only_data_get_uses_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with a_folder():
        assert asked("train", *QUICK, "--out", "run").code == 0
        assert asked("evaluate", "run", "--solver", "rk4", "--steps", 4).code == 0
        assert asked("audit", "run", "--samples", 10, "--html", "page.html", "--json").code in (0, 10, 11, 12, 13)
        assert asked("data", "list").code == 0
        assert asked("study", "list").code == 0
        with pytest.raises(AssertionError, match="a connection was asked for"):
            asked("data", "get", "mnist")
