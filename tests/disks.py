"""Disks, and what may lie on them that is no file."""

import os
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def a_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/socket")  # whose path may not be long
        os.rename(f"{short}/socket", path)


def a_link_to_a_file(path: Path) -> None:
    path.with_name("target").write_text("mine")
    path.symlink_to(path.with_name("target"))


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


KINDS = [
    pytest.param(a_device, "a device", id="device"),
    pytest.param(lambda path: os.mkfifo(path), "a pipe", id="pipe"),
    pytest.param(a_socket, "a socket", id="socket"),
    pytest.param(a_link_to_a_file, "a link", id="link"),
    pytest.param(a_link_to_nothing, "a link", id="link to nothing"),
    pytest.param(a_link_to_itself, "a link", id="link to itself"),
]
