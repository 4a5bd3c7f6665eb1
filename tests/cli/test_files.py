"""What commands write, and where: nothing of the user's own is lost, and nothing but a file is replaced."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import QUICK, Command, assert_one_sentence, files
from tests.disks import KINDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such files on Windows")


@pytest.mark.parametrize("name", ["environment.json", "lock"])
def test_training_leaves_a_users_own_file_as_it_is(run: Command, name: str) -> None:
    Path("mine").mkdir()
    Path("mine", name).write_text('{"device": "my own"}')
    assert_one_sentence(run("train", *QUICK, "--out", "mine"), rf"mine holds other files \({name}, ...\): choose a new")
    assert files(Path("mine")) == {name: b'{"device": "my own"}'}


@pytest.mark.parametrize("name", ["environment.json", "lock"])
def test_training_follows_no_link(run: Command, name: str) -> None:
    Path("precious").write_text("1234\n")
    Path("linked").mkdir()
    Path("linked", name).symlink_to("../precious")
    assert_one_sentence(run("train", *QUICK, "--out", "linked"), rf"linked holds other files \({name}, ...\)")
    assert Path("precious").read_text() == "1234\n"
    assert os.listdir("linked") == [name]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_a_figure_replaces_files_only_which_is_told_before_the_audit(
    run: Command,
    make: Callable[[Path], None],
    kind: str,
) -> None:
    make(Path("audit.png"))
    before = os.lstat("audit.png")
    assert_one_sentence(run("audit", "rotations:broken"), rf"audit\.png cannot be written, since it is {kind}: choose")
    assert os.path.samestat(os.lstat("audit.png"), before)
