"""`--ray`: how it is read, and what is refused, without Ray."""

import socket
import threading
from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, SPHERES, Command, assert_one_sentence, files
from tests.paper.cluster.pools import PoolHere, opened
from tests.paper.studies.small import SMALL, TABLE
from windermere.cli import elsewhere
from windermere.cli.options import _with_address
from windermere.errors import UsageError
from windermere.paper.cluster import address
from windermere.paper.studies import registry
from windermere.paper.training import load_run


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small study; and Ray is there, whether or not it is."""
    monkeypatch.setitem(registry.STUDIES, "small", SMALL)
    monkeypatch.setattr(address, "find_spec", lambda name: name)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The addresses of pools that are opened, all of them in this process."""
    found: list[str | None] = []

    def open_pool(address: str | None) -> object:
        found.append(address)
        return opened(PoolHere())

    monkeypatch.setattr(elsewhere, "open_pool", open_pool)
    return found


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("--ray", "--ray="),
        ("--ray NAME", "--ray= NAME"),
        ("--ray --quick NAME", "--ray= --quick NAME"),
        ("--ray auto", "--ray auto"),
        ("--ray local NAME", "--ray local NAME"),
        ("--ray 10.0.0.1", "--ray 10.0.0.1"),
        ("--ray --out=a:b", "--ray= --out=a:b"),
        ("--ray head:6379 NAME", "--ray head:6379 NAME"),
        ("--ray=head:6379", "--ray=head:6379"),
        ("NAME --out a", "NAME --out a"),
    ],
)
def test_the_flag_may_stand_alone_and_takes_what_looks_like_an_address(typed: str, read: str) -> None:
    assert list(_with_address(typed.split())) == read.split()


def test_a_study_is_run_by_a_pool(run: Command, addresses: list[str | None]) -> None:
    answer = run("study", "run", "--ray", "small", "--seeds", "2", "--quick")
    assert answer.code == 0, answer.err
    assert addresses == [None]
    assert len(TABLE.read(Path("runs/quick/small"))) == 4
    assert "euler-16 on here" in answer.err


def test_what_to_go_on_with_names_ray(run: Command, addresses: list[str | None]) -> None:
    answer = run("study", "run", "small", "--ray", "head:6379", "--seeds", "2", "--time-limit", "0")
    assert answer.code == 0
    assert answer.err.splitlines()[-1].endswith(
        "windermere study run small --out results/small --seeds 2 --ray head:6379"
    )
    assert addresses == ["head:6379"]


def test_a_study_that_is_done_opens_no_pool(run: Command, addresses: list[str | None]) -> None:
    run("study", "run", "small", "--seeds", "1", "--quick")
    assert run("study", "run", "small", "--seeds", "1", "--quick", "--ray").code == 0
    assert addresses == []


def test_a_run_is_trained_by_a_pool_and_resumed_without(run: Command, addresses: list[str | None]) -> None:
    answer = run("train", *QUICK, "--out", "a", "--ray")
    assert answer.code == 0, answer.err
    assert "a is trained on here" in answer.err
    assert load_run("a") is not None
    assert run("train", "--out", "a", "--resume", "--iterations", "8").code == 0
    assert addresses == [None]


def test_a_folder_that_holds_a_run_is_refused_as_without_ray(run: Command, addresses: list[str | None]) -> None:
    run("train", *QUICK, "--out", "a")
    before = files(Path("a"))
    assert_one_sentence(run("train", *QUICK, "--out", "a", "--ray"), "a already holds a run")
    assert files(Path("a")) == before


def test_without_ray_one_sentence_says_how_to_get_it(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "find_spec", lambda name: None)
    answer = run("study", "run", "small", "--ray")
    assert_one_sentence(answer, "Ray is not there", r"pip install 'windermere-ode\[ray\]'")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpu-share", 0.5), "--gpu-share .* add --ray, or leave it out"),
        (("--ray", "--gpu-share", 0), "--gpu-share takes a share"),
        (("--ray", "--device", "cuda:1"), "Ray chooses which GPU"),
        (("--ray=ray://head:1",), "submit it as a job"),
        (("--ray=head",), "'head' is no address of a Ray cluster: give the host:port"),
        (("--ray=head:port",), "'head:port' is no address"),
        (("--ray=:6379",), "':6379' is no address"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(run: Command, flags: tuple[object, ...], words: str) -> None:
    assert_one_sentence(run("train", *SPHERES, *EULER, "--out", "a", *flags), words)
    assert_one_sentence(run("study", "run", "small", *flags), words)
    assert not files(Path())


def test_a_study_that_trains_nothing_refuses_it(run: Command) -> None:
    assert_one_sentence(run("study", "run", "sphere2-data", "--ray"), "--ray is for studies that train models")


@pytest.mark.parametrize(
    "command", [("train", *SPHERES, *EULER, "--out", "a"), ("study", "run", "small", "--out", "a")]
)
def test_a_gpu_that_is_nowhere_is_refused_before_any_run_is_begun(
    run: Command, addresses: list[str | None], command: tuple[str, ...]
) -> None:
    answer = run(*command, "--device", "cuda", "--ray")
    assert_one_sentence(answer, "there is no GPU")
    assert not [path for path in files(Path()) if "config" in path]


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad request", b""])
@pytest.mark.parametrize(
    "command", [("train", *SPHERES, *EULER, "--out", "a"), ("study", "run", "small", "--out", "a")]
)
def test_another_server_than_rays_is_refused_in_a_sentence_and_leaves_no_folder(
    run: Command, command: tuple[object, ...], answer: bytes
) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=answering, args=(server, answer), daemon=True).start()
        assert_one_sentence(run(*command, "--ray", where), f"what answers at '{where}' is not Ray")
    assert not Path("a").exists()


def test_a_cluster_that_speaks_tls_is_not_greeted_in_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=answering, args=(server, b"\x15\x03\x01\x00\x02\x02\x46"), daemon=True).start()
        with pytest.raises(UsageError, match="is not Ray"):
            address.refuse_unless_answered(where)
        monkeypatch.setenv("RAY_USE_TLS", "1")
        address.refuse_unless_answered(where)


def answering(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(answer)


@pytest.mark.parametrize(
    "command", [("train", *SPHERES, *EULER, "--out", "a"), ("study", "run", "small", "--out", "a")]
)
def test_where_nothing_answers_that_is_said_and_no_folder_left(run: Command, command: tuple[object, ...]) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # that of nobody, once it is closed
    answer = run(*command, "--ray", f"127.0.0.1:{port}")
    assert_one_sentence(answer, f"there is no Ray at '127.0.0.1:{port}' .*refused.*: give the host:port of its head")
    assert not Path("a").exists()
