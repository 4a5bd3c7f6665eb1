"""Kernels are compiled once, apart, while solves go another way; whatever goes wrong there harms no solve."""

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import windermere as wm
from tests.fast.fields import WithTime, made
from tests.fast.gpu.host import Host
from tests.fast.spheres import assert_same
from tests.fast.test_rows import solved, state
from tests.processes import ROOT, python
from tests.threads import run_together
from windermere.fast import traced
from windermere.fast.gpu import driver, images
from windermere.fast.gpu.driver import Gpu
from windermere.fast.gpu.encoding import Machine
from windermere.fast.gpu.images import ELF, Compiler, Images, Source, UnusableError
from windermere.fast.gpu.path import RowsOnGpu
from windermere.solvers import paths

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no kernels on Windows")
IMAGE = ELF + b" of a kernel"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "own.cu").write_text("own")
    (tmp_path / "part.h").write_text("part")
    return Source(tmp_path / "own.cu", (tmp_path / "part.h",))


@dataclass
class Slow:
    """A compiler that is done when it is told to be."""

    may_end: Event = field(default_factory=Event)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    version: tuple[int, int] = (13, 0)
    fails: bool = False

    def compiled(self, source: Source, options: tuple[str, ...]) -> bytes:
        self.calls.append(options)
        self.may_end.wait()
        if self.fails:
            raise UnusableError("it does not like it")
        return IMAGE


@pytest.fixture
def slow() -> Iterator[Slow]:
    compiler = Slow()
    yield compiler
    compiler.may_end.set()


def images_of(compiler: Any) -> Images:
    return Images(lambda: compiler)


def test_who_does_not_wait_has_nothing_until_it_is_compiled(slow: Slow, source: Source) -> None:
    made = images_of(slow)
    assert [made.ask(source, ()) for _ in range(3)] == [None] * 3
    slow.may_end.set()
    assert made.ask(source, (), wait=True) == IMAGE
    assert made.ask(source, ()) == IMAGE
    assert slow.calls == [()]


def test_threads_that_ask_together_compile_once(slow: Slow, source: Source) -> None:
    made = images_of(slow)

    def ask() -> bytes | None:
        slow.may_end.set()
        return made.ask(source, ("-O",), wait=True)

    assert run_together(*[ask] * 8) == [IMAGE] * 8
    assert slow.calls == [("-O",)]


def test_what_was_compiled_is_there_at_once_in_later_processes(slow: Slow, source: Source) -> None:
    slow.may_end.set()
    first = images_of(slow)
    first.ask(source, (), wait=True)
    for thread in first.threads:
        thread.join()
    assert images_of(slow).ask(source, ()) == IMAGE
    assert slow.calls == [()]


@pytest.mark.parametrize("change", ["text", "included", "options", "version", "damage"])
def test_what_is_made_of_something_else_is_compiled_again(change: str, slow: Slow, source: Source) -> None:
    slow.may_end.set()
    first = images_of(slow)
    options: tuple[str, ...] = ("-O",)
    first.ask(source, options, wait=True)
    for thread in first.threads:
        thread.join()
    if change == "text":
        source.path.write_text("other")
    elif change == "included":
        source.included[0].write_text("other")
    elif change == "options":
        options = ("-O", "-D")
    elif change == "version":
        slow.version = (13, 1)
    else:
        (kept,) = source.path.parent.rglob("*.cubin")
        kept.write_bytes(kept.read_bytes()[:-1])
    images_of(slow).ask(source, options, wait=True)
    assert len(slow.calls) == 2


def test_a_compilation_that_fails_is_tried_once_and_told_to_all(slow: Slow, source: Source) -> None:
    slow.fails = True
    slow.may_end.set()
    made = images_of(slow)
    for wait in (True, False, True):
        with pytest.raises(UnusableError, match="does not like it"):
            made.ask(source, (), wait=wait)
    assert slow.calls == [()]
    assert not list(source.path.parent.rglob("*.cubin"))


def test_without_a_compiler_there_are_no_kernels(source: Source) -> None:
    def none() -> Compiler:
        raise UnusableError("there is none")

    with pytest.raises(UnusableError, match="there is none"):
        Images(none).ask(source, ())


def test_without_a_cache_each_process_compiles(slow: Slow, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "cache_folder", lambda: (_ for _ in ()).throw(PermissionError("mine")))
    slow.may_end.set()
    for _ in range(2):
        assert images_of(slow).ask(source, (), wait=True) == IMAGE
    assert len(slow.calls) == 2


LIBRARY = """
#include <string.h>
int nvrtcVersion(int *major, int *minor) { *major = 13, *minor = 7; return 0; }
static const char *text;
int nvrtcCreateProgram(void **p, const char *source, const char *name, int n, const char **texts, const char **names) {
    text = source; *p = (void *)text;
    return strcmp(name, "own.cu") || n != 1 || strcmp(texts[0], "part") || strcmp(names[0], "part.h");
}
int nvrtcCompileProgram(void *p, int n, const char **options) {
    if (!strcmp(text, "crash")) *(volatile int *)0 = 1;
    return strcmp(text, "own") || n != 1 || strcmp(options[0], "-O");
}
int nvrtcGetCUBINSize(void *p, size_t *n) { *n = 9; return 0; }
int nvrtcGetCUBIN(void *p, char *to) { memcpy(to, "\\x7f" "ELF code", 9); return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = 8; return 0; }
int nvrtcGetProgramLog(void *p, char *to) { memcpy(to, "line one", 8); return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something with NVRTC's functions."""
    folder = tmp_path_factory.mktemp("nvrtc")
    (folder / "nvrtc.c").write_text(LIBRARY)
    words = [os.environ.get("CC", "cc"), "-shared", "-fPIC", str(folder / "nvrtc.c"), "-o", str(folder / "nvrtc.so")]
    try:
        subprocess.run(words, check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler here")
    return folder / "nvrtc.so"


def test_a_process_apart_compiles_by_nvrtc(library: Path, source: Source) -> None:
    compiler = images.opened(library)
    assert compiler.version == (13, 7)
    assert compiler.compiled(source, ("-O",)) == ELF + b" code"


def test_a_library_that_is_loaded_already_is_found_where_it_lies(
    library: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that PyTorch has brought into this process from a place that others do not search."""
    ctypes.CDLL(str(library))
    monkeypatch.setattr(images, "library_name", lambda: library.name)
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, own=ctypes.CDLL, **named: own(f"{library.parent}/{Path(name).name}")
    )
    images.installed.cache_clear()
    try:
        assert images.installed() == Compiler(str(library), (), (13, 7))
    finally:
        images.installed.cache_clear()


@pytest.mark.parametrize(("text", "said"), [("wrong", "line one"), ("crash", "does not compile")])
def test_what_nvrtc_says_or_dies_of_is_told(text: str, said: str, library: Path, source: Source) -> None:
    source.path.write_text(text)
    with pytest.raises(UnusableError, match=said):
        images.opened(library).compiled(source, ("-O",))


@pytest.mark.parametrize("words", [["true"], ["echo", "something else"], ["/no/such/program"]])
def test_a_python_that_is_none_is_told(
    words: list[str], library: Path, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{' '.join(words)}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program) if words[0] != "/no/such/program" else words[0])
    with pytest.raises(UnusableError, match="NVRTC"):
        images.opened(library).compiled(source, ("-O",))


ENDS = """
from pathlib import Path
from windermere.fast.gpu.images import Images, Source
from windermere.fast.gpu import images
import sys
images.compiling.__file__ = sys.argv[1]
class Own(images.Compiler):
    pass
made = Images(lambda: Own("none", (), (13, 0)))
assert made.ask(Source(Path(sys.argv[2])), ()) is None
while not Path(sys.argv[3]).exists() and made.threads[0].is_alive():
    pass
print("done")
"""
WAITS = """
import os, pathlib, sys
sys.stdin.read()
may_end = os.open({may_end!r}, os.O_RDWR)
pathlib.Path({begun!r}).touch()
os.read(may_end, 1)
"""


def test_a_process_that_ends_in_the_middle_of_it_just_ends(source: Source, tmp_path: Path) -> None:
    """And does not wait for what it has no use for any more."""
    begun, may_end = tmp_path / "begun", tmp_path / "may end"
    os.mkfifo(may_end)
    (tmp_path / "waits.py").write_text(WAITS.format(begun=str(begun), may_end=str(may_end)))
    arguments = ("-c", ENDS, str(tmp_path / "waits.py"), str(source.path), str(begun))
    with python(*arguments, cwd=ROOT, stdout=-1, stderr=-1) as process:
        said, complained = process.communicate()
    reader = os.open(may_end, os.O_WRONLY | os.O_NONBLOCK)  # an error if nobody reads it any more
    os.write(reader, b"x")
    os.close(reader)
    assert (process.returncode, said.strip(), complained.strip()) == (0, "done", "")


class FakeDriver:
    """CUDA's, that loads images or says that it cannot."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.loaded = code, list[bytes]()

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        self.loaded.append(image)
        return self.code


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Gpu, FakeDriver]]:
    """A machine that seems to have one."""

    def make(compiler: Any, code: int = 0) -> tuple[Gpu, FakeDriver]:
        own = FakeDriver(code)
        monkeypatch.setattr(driver, "_driver", lambda: own)
        properties, stream = SimpleNamespace(major=9, minor=0), SimpleNamespace(synchronize=lambda: None)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        return Gpu(images_of(compiler)), own

    return make


MACHINE, DEVICE = Machine(256, 32, 4), torch.device("cuda", 0)


def test_kernels_are_used_once_they_are_there(slow: Slow, gpu: Any) -> None:
    made, own = gpu(slow)
    assert [made.ready(MACHINE, torch.float32, DEVICE) for _ in range(2)] == [False] * 2
    slow.may_end.set()
    for future in list(made.images.futures.values()):
        future.result()
    assert made.ready(MACHINE, torch.float32, DEVICE)
    assert made.ready(MACHINE, torch.float32, DEVICE)
    assert own.loaded == [IMAGE]
    assert slow.calls == [("--gpu-architecture=sm_90", "--std=c++17", "-DREAL=float", "-DROWS=4", "-DTHREADS=256")]


@pytest.mark.parametrize("code", [0, 222])
def test_kernels_that_cannot_be_had_are_told_once(
    code: int, slow: Slow, gpu: Any, caplog: pytest.LogCaptureFixture
) -> None:
    driver._say.cache_clear()
    slow.fails = code == 0
    slow.may_end.set()
    made, own = gpu(slow, code)
    made.waits = True
    with caplog.at_level(logging.INFO, "windermere"):
        assert not any(made.ready(MACHINE, torch.float64, DEVICE) for _ in range(3))
    assert len(caplog.records) == 1
    assert len(own.loaded) == (code != 0)


class NotYet(Host):
    """Has its kernels from some time on."""

    there = False

    def ready(self, *_: Any) -> bool:
        return self.there


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_solves_go_another_way_until_then_and_come_out_the_same(gradient: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = NotYet()
    monkeypatch.setattr(paths, "_paths", (RowsOnGpu(devices=("cpu",), engine=engine),))
    traced._shelves.clear()
    traced._shared.clear()
    field, solver = made(WithTime), wm.Adaptive("dopri54", tolerance=1e-4)
    before, _ = solved(field, state((2,)), solver, fast=True, gradient=gradient)
    assert engine.launched == []
    engine.there = True
    after, _ = solved(field, state((2,)), solver, fast=True, gradient=gradient)
    assert engine.launched[0] == "adapt"
    assert_same(after, before)
