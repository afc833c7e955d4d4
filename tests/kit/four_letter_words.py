"""What a ZooKeeper server says of itself."""

import re
import socket
from contextlib import suppress

from tests.lab.zookeeper import ZooKeeper

_ANSWER_SECONDS = 2.0


def says(server: ZooKeeper, word: str) -> str:
    """Its answer to a four-letter word; nothing when it is dead or frozen."""
    host, port = server.address.split(":")
    answer = b""
    with suppress(OSError), socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
        connection.sendall(word.encode())
        while part := connection.recv(4096):
            answer += part
    return answer.decode()


def zxid(server: ZooKeeper) -> int:
    """The number of its last transaction."""
    answer = says(server, "srvr")
    match = re.search(r"Zxid: 0x([0-9a-f]+)", answer)
    assert match, answer
    return int(match[1], 16)
