"""Where a cluster is: what can be no address, and whether anything like Ray answers there. It knows no Ray."""

import os
import re
import socket
from importlib.util import find_spec

from windermere.errors import UsageError

HERE, WORDS = "local", ("auto", "local")
ADVICE = "give the host:port of its head, as `ray start --head` prints it"
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How gRPC, which Ray speaks, begins (RFC 9113, 3.4): the preface, and settings with nothing in them."""
PATIENCE = 10.0
"""Seconds to wait for an answer."""


def address_or_here(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or HERE


def check_address(address: str | None) -> None:
    """Refuses what cannot be, before anything is made."""
    address = address_or_here(address)
    if "://" in address:
        raise UsageError(
            f"Ray's client cannot be used ({address}), since the driver writes to the folder that all nodes see: start "
            "this on a machine of the cluster, or submit it as a job"
        )
    if address not in WORDS and not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s]+):[0-9]{1,5}", address):
        raise UsageError(f"'{address}' is no address of a Ray cluster: {ADVICE}")
    if find_spec("ray") is None:
        raise UsageError("Ray is not there: get it with pip install 'windermere-ode[ray]'")


def refuse_unless_answered(address: str) -> None:
    """Ray itself would try for minutes, and write lines about it."""
    if address in WORDS:
        return
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
                return  # then it says nothing to who greets it in plain text
            connection.settimeout(PATIENCE)
            connection.sendall(GREETING)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise UsageError(f"there is no Ray at '{address}' ({error}): {ADVICE}") from error
    if answer[3:4] != b"\x04":  # the kind of a frame with settings, which a server sends first
        raise UsageError(f"what answers at '{address}' is not Ray: {ADVICE}")
