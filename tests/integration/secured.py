"""A ZooKeeper that wants to know whom it talks to, and the certificates for it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from sidecar.lab.processes import free_port
from sidecar.lab.zookeeper import ZooKeeper

USER, PASSWORD = "sidecar", "correct-horse"

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


class Authority:
    """A certificate authority in `folder`; makes certificates with `openssl`, which every Debian with CA certificates has."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.ca = folder / "ca.pem"
        self._ca_key = folder / "ca.key"
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={folder.name}", "-keyout", str(self._ca_key), "-out", str(self.ca)),
        )

    def issue(
        self, name: str, *alternative_names: str, days: int = 2, password: str | None = None
    ) -> tuple[Path, Path]:
        """Certificate and private key (encrypted where there is a `password`) for `DNS:…` and `IP:…` names.

        `days` below zero: it has expired.
        """
        certificate, key, request = (self._folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr"))
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={name}"),
            *(("-passout", f"pass:{password}") if password else ("-nodes",)),
            *(("-addext", f"subjectAltName={','.join(alternative_names)}") if alternative_names else ()),
            *("-keyout", str(key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._ca_key), "-CAcreateserial"),
            *("-days", str(days), "-copy_extensions", "copy", "-out", str(certificate)),
        )
        return certificate, key

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)  # noqa: S607


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
