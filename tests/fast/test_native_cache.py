"""The library in the cache: damaged in any way it kills nobody, and nobody loads what another user wrote."""

import json
import os
import random
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from numpy.random import mtrand

from tests.processes import ROOT, python
from windermere.fast.cpu import compiled, native_cache

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")

COMPILER = """
echo >> {folder}/calls
for word; do [ "$before" = -o ] && target=$word; before=$word; done
[ -e {folder}/made ] || {real} "$@" -o {folder}/made
cat {folder}/made > "$target"
"""
"""Compiles once, and from then on gives the same again: the tests are quick, and can tell how often it was called."""
ANOTHER = 54321
"""A user who is neither root nor anybody else here."""
PAGE = 4096
TOO_SLOW = "did not compile the C code in"


@dataclass(frozen=True)
class Answer:
    """What became of a process that solves, in the words of solving.py."""

    code: int
    values: tuple[str, ...] = ()
    in_c: bool = False
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workshop:
    """Processes that solve, and a compiler for them."""

    asked: "subprocess.Popen[str]"
    folder: Path

    @property
    def compiler(self) -> str:
        """As the variable CC has it."""
        return shlex.join(["sh", str(self.folder / "compiler")])

    @property
    def calls(self) -> int:
        """Of the compiler, so far."""
        return len((self.folder / "calls").read_text())

    def solve(self, cache: Path, **given: Any) -> Answer:
        return self.solve_at_once([self.asking(cache, **given)])[0]

    def asking(self, cache: Path, **given: Any) -> dict[str, Any]:
        variables = {"XDG_CACHE_HOME": str(cache), "CC": self.compiler, **given.pop("variables", {})}
        return {"variables": variables, **given}

    def solve_at_once(self, asked: list[dict[str, Any]]) -> list[Answer]:
        assert self.asked.stdin is not None
        assert self.asked.stdout is not None
        print(json.dumps(asked), file=self.asked.stdin, flush=True)
        return [
            Answer(found["code"], tuple(found.get("values", ())), found.get("in_c", False), tuple(found.get("log", ())))
            for found in json.loads(self.asked.stdout.readline())
        ]


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    if compiled.library("float", "sphere") is None:
        pytest.skip("no C compiler here")
    arguments = ("-m", "tests.fast.solving")
    with (
        tempfile.TemporaryDirectory() as folder,
        python(*arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked,
    ):
        (Path(folder) / "compiler").write_text(COMPILER.format(folder=folder, real=os.environ.get("CC", "cc")))
        (Path(folder) / "calls").touch()
        (Path(folder) / "calls").chmod(0o666)
        Path(folder).chmod(0o755)  # other users compile here, too
        yield Workshop(asked, Path(folder))


@dataclass(frozen=True)
class Sound:
    """An undamaged library, and what it computes."""

    name: str
    content: bytes
    values: tuple[str, ...]

    def put_into(self, cache: Path) -> Path:
        kept = libraries(cache) / self.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(self.content)
        kept.chmod(0o600)
        return kept


@pytest.fixture(scope="module")
def sound(workshop: Workshop) -> Sound:
    cache = workshop.folder / "cache"
    answer = workshop.solve(cache)
    assert (answer.code, answer.in_c, answer.log) == (0, True, ())
    (workshop.folder / "made").chmod(0o644)  # for other users
    (kept,) = libraries(cache).iterdir()
    return Sound(kept.name, kept.read_bytes(), answer.values)


def libraries(cache: Path) -> Path:
    return cache / "windermere" / "native"


# ---------------------------------------------------------------------------------------------------------
# Damage

Damage = Callable[[Path, bytes], None]


def cut(share: float) -> Damage:
    return lambda kept, whole: os.truncate(kept, int(share * len(whole)))


def cut_by(many: int) -> Damage:
    return lambda kept, whole: os.truncate(kept, len(whole) - many)


def cut_to(many: int) -> Damage:
    return lambda kept, whole: os.truncate(kept, many)


def zeroed(page: int) -> Damage:
    return lambda kept, whole: written(kept, page % (len(whole) // PAGE) * PAGE, bytes(PAGE))


def flipped(seed: int) -> Damage:
    """One bit, anywhere."""

    def flip(kept: Path, whole: bytes) -> None:
        chance = random.Random(seed)
        place = chance.randrange(len(whole))
        written(kept, place, bytes([whole[place] ^ 1 << chance.randrange(8)]))

    return flip


def written(kept: Path, place: int, content: bytes) -> None:
    with kept.open("r+b") as file:
        file.seek(place)
        file.write(content)


def filled_with(content: bytes) -> Damage:
    def fill(kept: Path, whole: bytes) -> None:
        kept.write_bytes(content)

    return fill


def added_to(kept: Path, whole: bytes) -> None:
    kept.write_bytes(whole + b"\n")


def without_seal(kept: Path, whole: bytes) -> None:
    kept.write_bytes(whole[: -native_cache.SEAL])


def sealed_as_another(kept: Path, whole: bytes) -> None:
    """Whole, but of another name, as of another processor."""
    kept.write_bytes(whole[: -native_cache.SEAL] + native_cache._seal("native-0.so", whole[: -native_cache.SEAL]))


def foreign(kept: Path, whole: bytes) -> None:
    kept.write_bytes(Path(mtrand.__file__).read_bytes())


def halves_swapped(kept: Path, whole: bytes) -> None:
    kept.write_bytes(whole[len(whole) // 2 :] + whole[: len(whole) // 2])


def huge(kept: Path, whole: bytes) -> None:
    os.truncate(kept, 1 << 40)


def replaced(make: Callable[[Path], object]) -> Damage:
    def replace(kept: Path, whole: bytes) -> None:
        kept.unlink()
        make(kept)

    return replace


def a_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/socket")  # whose path may not be long
        os.rename(f"{short}/socket", path)


def linked(kept: Path, whole: bytes) -> None:
    """To the same, at another place."""
    kept.with_name("elsewhere").write_bytes(whole)
    kept.unlink()
    kept.symlink_to("elsewhere")


def given_away(kept: Path, whole: bytes) -> None:
    try:
        os.chown(kept, ANOTHER, ANOTHER)
    except PermissionError:
        pytest.skip("only root gives files away")


def allowed(mode: int) -> Damage:
    return lambda kept, whole: kept.chmod(mode)


DAMAGES: dict[str, Damage] = {
    **{f"cut to {share:.0%}": cut(share) for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)},
    **{f"cut by {many} bytes": cut_by(many) for many in (1, 31, 32, 33, PAGE)},
    **{f"cut to {many} bytes": cut_to(many) for many in (0, 1, 4, 31, 32, 33, 64, PAGE)},
    **{f"page {page} zeroed": zeroed(page) for page in (0, 1, 2, 3, 5, 7, 11, 13, 17, -1)},
    **{f"bit {seed} flipped": flipped(seed) for seed in range(16)},
    "zeros": filled_with(bytes(100_000)),
    "text": filled_with(b"int main(void) { return 0; }\n"),
    "an ELF header only": filled_with(b"\x7fELF\x02\x01\x01" + bytes(9)),
    "another library": foreign,
    "another name's": sealed_as_another,
    "no seal": without_seal,
    "a byte too many": added_to,
    "halves swapped": halves_swapped,
    "a terabyte": huge,
    "a link to the same": linked,
    "a link to nothing": replaced(lambda path: path.symlink_to("nowhere")),
    "a link to itself": replaced(lambda path: path.symlink_to(path)),
    "a link to a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a pipe": replaced(os.mkfifo),
    "a socket": replaced(a_socket),
    "another user's": given_away,
    "for the group to write": allowed(0o660),
    "for all to write": allowed(0o606),
    "missing": replaced(lambda path: None),
}


def test_there_are_fifty_ways_of_damage() -> None:
    assert len(DAMAGES) >= 50


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_library_is_replaced_and_all_solve_as_before(
    workshop: Workshop, sound: Sound, tmp_path: Path, damage: Damage
) -> None:
    kept = sound.put_into(tmp_path)
    damage(kept, sound.content)
    before = workshop.calls
    for _ in range(2):
        assert workshop.solve(tmp_path) == Answer(code=0, values=sound.values, in_c=True)
    assert workshop.calls == before + 1  # by the first of the two
    assert stat.S_ISREG(kept.lstat().st_mode)
    assert kept.read_bytes() == sound.content
    assert {entry.name for entry in kept.parent.iterdir()} <= {kept.name, "elsewhere"}


@pytest.mark.parametrize("damage", [None, "mode 0400"])
def test_a_sound_library_is_not_compiled_again(
    workshop: Workshop, sound: Sound, tmp_path: Path, damage: str | None
) -> None:
    kept = sound.put_into(tmp_path)
    kept.chmod(0o400 if damage else 0o600)
    before = workshop.calls
    assert workshop.solve(tmp_path) == Answer(code=0, values=sound.values, in_c=True)
    assert workshop.calls == before


def make_a_folder_of_the_library(cache: Path, sound: Sound) -> None:
    (libraries(cache) / sound.name).mkdir(parents=True)


def make_a_file_of_the_folder(cache: Path, sound: Sound) -> None:
    cache.mkdir()
    (cache / "windermere").write_text("mine")


def make_a_loop_of_the_folder(cache: Path, sound: Sound) -> None:
    cache.mkdir()
    (cache / "windermere").symlink_to("windermere")


@pytest.mark.parametrize("make", [make_a_folder_of_the_library, make_a_file_of_the_folder, make_a_loop_of_the_folder])
def test_where_nothing_can_be_kept_each_process_compiles_and_says_why(
    workshop: Workshop, sound: Sound, tmp_path: Path, make: Callable[[Path, Sound], None]
) -> None:
    make(tmp_path / "cache", sound)
    before = sorted(tmp_path.rglob("*"))
    answer = workshop.solve(tmp_path / "cache")
    assert (answer.code, answer.values, answer.in_c) == (0, sound.values, True)
    (line,) = answer.log
    assert "cannot be kept (" in line
    assert "for this process alone" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_processes_that_begin_at_once_all_solve_and_leave_one_sound_library(
    workshop: Workshop, sound: Sound, tmp_path: Path
) -> None:
    answers = workshop.solve_at_once([workshop.asking(tmp_path) for _ in range(6)])
    assert answers == [Answer(code=0, values=sound.values, in_c=True)] * 6
    assert [(path.name, path.read_bytes()) for path in libraries(tmp_path).iterdir()] == [(sound.name, sound.content)]


# ---------------------------------------------------------------------------------------------------------
# Other users


def needs_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in compiled.SOURCE.parents):
        pytest.skip("other users cannot read this checkout")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def planted(workshop: Workshop, sound: Sound, shared: Path) -> Path:
    """A library of the right name and with a right seal that does what it wants as soon as it is loaded."""
    source, made = shared / "planted.c", shared / "planted.so"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) void run(void) "
        f'{{ FILE *file = fopen("{shared}/ran", "w"); if (file) fclose(file); }}\n'
    )
    command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    content = made.read_bytes()
    made.write_bytes(content + native_cache._seal(sound.name, content))
    return made


def plant(planted: Path, cache: Path, sound: Sound) -> Path:
    kept = libraries(cache) / sound.name
    kept.parent.mkdir(parents=True)
    shutil.copyfile(planted, kept)
    kept.chmod(0o600)
    return kept


def test_a_library_with_a_right_seal_in_a_folder_of_ones_own_is_loaded(
    workshop: Workshop, sound: Sound, planted: Path, shared: Path
) -> None:
    """Or else the tests below would prove nothing."""
    plant(planted, shared / "cache", sound)
    answer = workshop.solve(shared / "cache")
    assert (answer.code, answer.in_c) == (0, False)
    assert (shared / "ran").exists()
    assert "the C code cannot be used" in answer.log[0]


Opening = Callable[[Path, Path], None]


def give_all(cache: Path, kept: Path) -> None:
    for path in (cache, *cache.rglob("*")):
        os.chown(path, ANOTHER, ANOTHER)


def give_our_folder(cache: Path, kept: Path) -> None:
    os.chown(cache / "windermere", ANOTHER, ANOTHER)


def give_the_last_folder(cache: Path, kept: Path) -> None:
    os.chown(kept.parent, ANOTHER, ANOTHER)


def give_the_first_folder(cache: Path, kept: Path) -> None:
    os.chown(cache, ANOTHER, ANOTHER)


def let_all_write(cache: Path, kept: Path) -> None:
    cache.chmod(0o777)


def let_the_group_write(cache: Path, kept: Path) -> None:
    cache.chmod(0o770)


def link_to_anothers(cache: Path, kept: Path) -> None:
    (cache / "windermere").rename(cache.with_name("anothers"))
    give_all(cache.with_name("anothers"), kept)
    (cache / "windermere").symlink_to(cache.with_name("anothers"))


@pytest.mark.parametrize(
    "opening",
    [
        give_all,
        give_our_folder,
        give_the_last_folder,
        give_the_first_folder,
        let_all_write,
        let_the_group_write,
        link_to_anothers,
    ],
)
def test_what_another_user_could_have_written_is_not_loaded_and_the_log_says_so(
    workshop: Workshop, sound: Sound, planted: Path, shared: Path, opening: Opening
) -> None:
    cache = shared / "cache"
    kept = plant(planted, cache, sound)
    try:
        opening(cache, kept)
    except PermissionError:
        pytest.skip("only root gives files away")
    answer = workshop.solve(cache)
    assert (answer.code, answer.values, answer.in_c) == (0, sound.values, True)
    assert not (shared / "ran").exists()
    (line,) = answer.log
    assert "belongs to another user" in line or "other users may write in" in line
    assert str(cache) in line or str(shared / "anothers") in line


def test_another_users_library_in_a_folder_of_ones_own_is_replaced(
    workshop: Workshop, sound: Sound, planted: Path, shared: Path
) -> None:
    kept = plant(planted, shared, sound)
    given_away(kept, b"")
    assert workshop.solve(shared) == Answer(code=0, values=sound.values, in_c=True)
    assert not (shared / "ran").exists()
    assert kept.read_bytes() == sound.content


def test_a_shared_temporary_folder_where_anyone_moves_anything_is_not_compiled_in(
    workshop: Workshop, shared: Path
) -> None:
    shared.chmod(0o777)
    answer = workshop.solve(shared / "cache", variables={"TMPDIR": str(shared)})
    assert (answer.code, answer.in_c) == (0, False)
    assert "cannot be kept" in answer.log[0]
    assert "cannot be used" in answer.log[1]
    assert list(shared.iterdir()) == []


def test_in_a_folder_like_tmp_everyone_has_a_cache_of_ones_own(workshop: Workshop, sound: Sound, shared: Path) -> None:
    shared.chmod(0o1777)
    assert workshop.solve(shared) == Answer(code=0, values=sound.values, in_c=True)
    assert (libraries(shared) / sound.name).read_bytes() == sound.content


@pytest.mark.parametrize("umask", [0, 0o002, 0o077, 0o777])
def test_all_is_private_whatever_the_umask(workshop: Workshop, sound: Sound, shared: Path, umask: int) -> None:
    """As another user than root, whom no mode keeps from anything, where that can be."""
    (shared / "home").mkdir(mode=0o755)
    user = None
    if os.geteuid() == 0:
        needs_another_user()
        user = ANOTHER
        os.chown(shared / "home", ANOTHER, ANOTHER)
    home, cache = shared / "home", shared / "home" / ".cache"
    given = {"umask": umask, "user": user, "without": ["XDG_CACHE_HOME"], "variables": {"HOME": str(home)}}
    before = workshop.calls
    for _ in range(2):
        assert workshop.solve(cache, **given) == Answer(code=0, values=sound.values, in_c=True)
    assert workshop.calls == before + 1
    found = {path.relative_to(home): stat.S_IMODE(path.stat().st_mode) for path in (cache, *sorted(cache.rglob("*")))}
    kept = (libraries(cache) / sound.name).relative_to(home)
    assert found == {kept: 0o600, **{folder: 0o700 for folder in kept.parents if folder.name}}


def test_a_folder_that_a_lax_umask_opened_to_others_is_closed_to_them_again(
    workshop: Workshop, sound: Sound, tmp_path: Path
) -> None:
    """As a download of data sets made it."""
    (tmp_path / "windermere" / "datasets").mkdir(parents=True)
    for folder in (tmp_path / "windermere", tmp_path / "windermere" / "datasets"):
        folder.chmod(0o775)
    assert workshop.solve(tmp_path) == Answer(code=0, values=sound.values, in_c=True)
    assert stat.S_IMODE((tmp_path / "windermere").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "windermere" / "datasets").stat().st_mode) == 0o775


@pytest.mark.parametrize("relative", ["cache", "./cache", ""])
def test_a_relative_cache_is_ignored(workshop: Workshop, sound: Sound, tmp_path: Path, relative: str) -> None:
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    variables = {"XDG_CACHE_HOME": relative, "HOME": str(tmp_path / "home")}
    answer = workshop.solve(Path("cache"), folder=str(tmp_path / "here"), variables=variables)
    assert answer == Answer(code=0, values=sound.values, in_c=True)
    assert list((tmp_path / "here").iterdir()) == []
    assert (libraries(tmp_path / "home" / ".cache") / sound.name).exists()


# ---------------------------------------------------------------------------------------------------------
# Compilers


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
