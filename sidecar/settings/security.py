"""The security of the connection to ZooKeeper: TLS, SASL, authorization."""

from collections.abc import Mapping
from pathlib import Path

from sidecar.settings.file.value import Given
from sidecar.settings.model import SaslSettings, Secret, TlsSettings

Place = Mapping[str, Given]


def read_tls(given: Place) -> TlsSettings | None:
    """What `tls` and `tls.…` say. The files are read once here, so that a mistake is told at the start."""
    if "tls" not in given:
        return None
    certificate, key, password = (given.get(f"tls.{name}") for name in ("certificate_file", "key_file", "key_password"))
    for without in (key, password):
        if without is not None and certificate is None:
            raise without.error("is of no use without certificate_file: give that too, or remove this")
    tls = TlsSettings(
        ca_file=readable(ca) if (ca := given.get("tls.ca_file")) else None,
        certificate_file=readable(certificate) if certificate else None,
        key_file=readable(key) if key else None,
        key_password=Secret(_not_empty(password)) if password else None,
    )
    try:
        tls.context()
    except ValueError as error:
        raise given["tls"].error(str(error)) from error
    return tls


def read_sasl(given: Place) -> SaslSettings | None:
    """What `sasl.…` says: both or nothing."""
    if "sasl" not in given:
        return None
    for key in ("username", "password"):
        if f"sasl.{key}" not in given:
            raise given["sasl"].error(f"{key} is missing")
    return SaslSettings(_not_empty(given["sasl.username"]), Secret(_not_empty(given["sasl.password"])))


def read_authorization(given: Place) -> dict[str, Secret]:
    """What `authorization.…` says, by scheme."""
    authorization = {}
    for name, credentials in given.items():
        section, _, scheme = name.partition(".")
        if section == "authorization" and scheme:
            if scheme == "sasl":
                raise credentials.error("SASL is no scheme to authorize with: give zookeeper.sasl")
            user, colon, _ = credentials.text.partition(":")
            if scheme == "digest" and not (user and colon):
                raise credentials.error("must be user:password")
            authorization[scheme] = Secret(_not_empty(credentials))
    return dict(sorted(authorization.items()))


def readable(given: Given) -> Path:
    """A file that can be read. What does not exist may be no path at all, but something secret in a wrong place."""
    path = given.path()
    try:
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no path"
        raise given.wrong(f"cannot be read: {reason}") from None


def _not_empty(given: Given) -> str:
    if not given.text:
        raise given.error("is empty: give a value, or remove it")
    return given.text
