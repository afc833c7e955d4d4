"""What a ZooKeeper server says of itself."""

import re
import socket

from sidecar.lab.zookeeper import ZooKeeper


def zxid(server: ZooKeeper) -> int:
    """The number of its last transaction."""
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while part := connection.recv(4096):
            answer += part
    found = re.search(rb"Zxid: 0x([0-9a-f]+)", answer)
    assert found, answer
    return int(found[1], 16)
