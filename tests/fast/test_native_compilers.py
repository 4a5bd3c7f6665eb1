"""Compilers that hang, are killed, fail or are not there."""

import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fast.workshop import TOO_SLOW, Answer, Sound, Workshop, libraries
from windermere.fast.cpu import compiled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


def script(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {"CC": shlex.join(["sh", str(path)])}


def test_a_compiler_that_hangs_is_ended_with_its_children_and_asked_once_only(
    workshop: Workshop, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        hanging = script(tmp_path / "hang", f"echo begun > {tmp_path}/pipe\nexec 9> {tmp_path}/pipe\nsleep 600 &\nwait")
        answer = workshop.solve(tmp_path / "cache", seconds=0.5, variables=hanging, kinds=["float", "double"])
        assert (answer.code, answer.in_c) == (0, False)
        assert [TOO_SLOW in line for line in answer.log] == [True]
        heard = b""
        while select.select([reading], [], [], 60)[0] and (more := os.read(reading, 100)):
            heard += more
        assert heard in (b"begun\n", b"")  # by one compiler, which a busy machine may not even have begun
        assert os.read(reading, 100) == b""  # and nobody holds the pipe any more
    finally:
        os.close(reading)
    assert list(libraries(tmp_path / "cache").iterdir()) == []


def test_ending_a_compiler_that_has_just_ended_hides_no_ctrl_c_behind_an_error() -> None:
    """At Ctrl-C Python waits for its child a little, and the child is gone where it ends in that time."""
    with subprocess.Popen(["true"], start_new_session=True) as process:
        process.wait()
        compiled._end(process)


def test_what_a_killed_compilation_leaves_is_swept_when_nobody_can_be_at_work_there(
    workshop: Workshop, sound: Sound, tmp_path: Path
) -> None:
    killing = script(tmp_path / "kill", 'touch "$TMPDIR/half"\nkill -9 $PPID')
    assert workshop.solve(tmp_path / "cache", variables=killing).code == -signal.SIGKILL
    (left,) = libraries(tmp_path / "cache").iterdir()
    assert (left / "half").exists()
    right = Answer(code=0, values=sound.values, in_c=True)
    assert workshop.solve(tmp_path / "cache") == right
    assert (left / "half").exists()  # perhaps its process is just slow
    os.utime(left, (0, 0))
    assert workshop.solve(tmp_path / "cache") == right
    assert [path.name for path in libraries(tmp_path / "cache").iterdir()] == [sound.name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo 'native.c:1: error: no such thing' >&2; exit 1", r"(native.c:1: error: no such thing)"),
        ("exit 1", "(it does not say why)"),
        ("exit 0", "(it does not say why)"),
        ("shift $(($# - 3)); : > $2", "cannot be used"),
        ("kill -9 $$", "(it does not say why)"),
    ],
)
def test_a_compiler_that_fails_is_one_line_in_the_log(
    workshop: Workshop, tmp_path: Path, text: str, reason: str
) -> None:
    broken = script(tmp_path / "broken", text)
    answer = workshop.solve(tmp_path / "cache", variables=broken, kinds=["float", "float"])
    assert (answer.code, answer.in_c) == (0, False)
    assert reason in answer.log[-1]
    assert "PyTorch operations do its work" in answer.log[-1]


@pytest.mark.parametrize("command", ["no-such-compiler", "", "cc '"])
def test_without_a_compiler_there_is_one_line_in_the_log(workshop: Workshop, tmp_path: Path, command: str) -> None:
    answer = workshop.solve(tmp_path, variables={"CC": command}, kinds=["float", "double"])
    assert (answer.code, answer.in_c) == (0, False)
    (line,) = answer.log
    assert f"no C compiler '{command}'" in line
    assert "\n" not in line


def test_who_wants_no_c_hears_nothing(workshop: Workshop, tmp_path: Path) -> None:
    variables = {"WINDERMERE_NATIVE": "0", "CC": "no-such-compiler"}
    answer = workshop.solve(tmp_path, variables=variables)
    assert (answer.code, answer.in_c, answer.log) == (0, False, ())
    assert list(tmp_path.iterdir()) == []
