"""Nobody loads what another user wrote, and all that is kept is private."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fast.workshop import ANOTHER, Answer, Sound, Workshop, given_away, libraries
from windermere.fast.cpu import compiled, native_cache

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


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
