"""The library in the cache: damaged in any way it kills nobody."""

import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy.random import mtrand

from tests.disks import a_socket
from tests.fast.workshop import PAGE, Answer, Sound, Workshop, given_away, libraries
from windermere.fast.cpu import native_cache

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


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


def linked(kept: Path, whole: bytes) -> None:
    """To the same, at another place."""
    kept.with_name("elsewhere").write_bytes(whole)
    kept.unlink()
    kept.symlink_to("elsewhere")


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
