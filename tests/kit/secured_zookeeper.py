"""A ZooKeeper that wants to know whom it talks to."""

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from tests.kit.certificates import Authority
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

USER, PASSWORD = "sidecar", "correct-horse"
_HANDSHAKE_SECONDS = 10.0
_SHADED = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper"
_CONFIG = f"""\
serverCnxnFactory={_SHADED}.server.NettyServerCnxnFactory
authProvider.sasl={_SHADED}.server.auth.SASLAuthenticationProvider
secureClientPortAddress=127.0.0.1
"""
_JAAS = f"""\
Server {{
  {_SHADED}.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}";
}};
"""


class SecuredZooKeeper(ZooKeeper):
    """ZooKeeper with a plain port (`address`) and a TLS port (`secure_address`), and one SASL user (USER, PASSWORD).

    `config` and `properties` are lines of zoo.cfg and system properties that it has besides.
    """

    def __init__(
        self,
        folder: Path,
        home: Path,
        java: Path,
        authority: Authority,
        certificate: tuple[Path, Path],
        *,
        config: str = "",
    ) -> None:
        super().__init__(folder, home, java)
        self._identity = folder / "identity.pem"
        self._authority = authority
        self._certificate = certificate
        self._config = config
        self._secure_port = 0

    @property
    def secure_address(self) -> str:
        """`127.0.0.1:PORT`, once it was started."""
        return f"127.0.0.1:{self._secure_port}"

    def choose_ports(self) -> None:
        super().choose_ports()
        self._secure_port = free_port()

    def is_ready(self) -> bool:
        """Whether its TLS port answers too: for the first handshake the JVM loads what takes seconds on a busy machine."""
        if not super().is_ready():
            return False
        anybody = ssl.create_default_context(cafile=self._authority.ca)
        anybody.check_hostname = False
        try:
            with (
                socket.create_connection(("127.0.0.1", self._secure_port), _HANDSHAKE_SECONDS) as connection,
                anybody.wrap_socket(connection),
            ):
                return True
        except ssl.SSLError:
            return True  # it wants a certificate
        except OSError:
            return False

    def build_command(self) -> Sequence[str]:
        java, *arguments = super().build_command()
        certificate, key = self._certificate
        self._identity.write_text(key.read_text() + certificate.read_text())
        jaas = self._identity.with_name("jaas.conf")
        jaas.write_text(_JAAS)
        with Path(arguments[-1]).open("a") as config:
            config.write(
                f"{_CONFIG}secureClientPort={self._secure_port}\nssl.keyStore.location={self._identity}\n"
                f"ssl.trustStore.location={self._authority.ca}\n{self._config}"
            )
        return [java, f"-Djava.security.auth.login.config={jaas}", *arguments]
