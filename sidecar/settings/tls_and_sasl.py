"""The security of a connection: TLS, SASL, ZooKeeper authorization."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from sidecar.net.endpoints import Secret
from sidecar.net.tls import client_context
from sidecar.settings.file.key import Key, keys_of, read_settings
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting

NamedSettings = Mapping[str, Setting]
"""The settings of one cluster in one source (command line, environment, a file), by name."""


def read_secret(setting: Setting) -> Secret:
    """The secret that stands there, which was read from its file if it is in one."""
    return Secret(setting.not_empty())


class TlsSettings(Struct, frozen=True):
    """TLS of a connection: CAs (None: those of this system) and our own certificate. The files are PEM."""

    ca_file: Annotated[Path | None, Key(Setting.readable)] = None
    """the CAs to trust, in place of the system's"""
    certificate_file: Annotated[Path | None, Key(Setting.readable)] = None
    """our certificate, with its chain, for servers that demand one"""
    key_file: Annotated[Path | None, Key(Setting.readable)] = None
    """its private key, unless `certificate_file` has it too"""
    key_password: Annotated[Secret | None, Key(read_secret)] = None
    """of the private key, if it is encrypted"""

    def context(self) -> ssl.SSLContext:
        """A context with the current content of the files: each call reads them, so that renewed certificates are used.

        Raises ValueError with the name of the file, never the password.
        """
        context = client_context()
        if self.ca_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=_pem(self.ca_file))
            except ssl.SSLError as error:
                raise ValueError(f"{self.ca_file} has no certificate in PEM format") from error
        if self.certificate_file is not None:
            key_file = self.key_file or self.certificate_file
            for file in (self.certificate_file, key_file):
                _pem(file)
            # Without a password OpenSSL would prompt on the terminal and block.
            password = self.key_password.reveal() if self.key_password else ""
            try:
                context.load_cert_chain(self.certificate_file, key_file, password)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"{self.certificate_file} and its private key {key_file} cannot be used: both must be PEM, belong together, and the "
                    f"key_password must be {'right' if self.key_password else 'given where the key is encrypted'}"
                ) from error
        return context


def _pem(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error


class SaslSettings(Struct, frozen=True):
    """Our SASL DIGEST-MD5 identity."""

    username: Annotated[str, Key(Setting.not_empty)]
    """as in the server's JAAS configuration"""
    password: Annotated[Secret, Key(read_secret)]


class Authorization(Struct, frozen=True):
    """Credentials by scheme."""

    digest: Annotated[Secret | None, Key(read_secret)] = None
    """`user:password`"""


SECURITY: Final[Mapping[str, type[Struct]]] = {"tls": TlsSettings, "sasl": SaslSettings, "authorization": Authorization}
"""The sections of `zookeeper`."""


def security_settings(section: Section) -> dict[str, Setting]:
    """The settings of the sections `tls`, `sasl` and `authorization` as `tls.ca_file`, …; `tls` itself has only a location."""
    settings = {}
    for name, struct in SECURITY.items():
        if name in section:
            nested = section.section(name)
            settings[name] = Setting("", nested.location, place=nested.place)
            for key, declared in keys_of(struct).items():
                if setting := nested.find(key):
                    is_secret = declared.key.read is read_secret
                    settings[f"{name}.{key}"] = setting.secret("value") if is_secret else setting
    return settings


def _section_settings(name: str, settings: NamedSettings) -> dict[str, Setting]:
    inside = f"{name}."
    return {key.removeprefix(inside): setting for key, setting in settings.items() if key.startswith(inside)}


def read_tls(settings: NamedSettings) -> TlsSettings | None:
    """The TLS settings; None without `tls`. Reads the files once, so that a mistake is an error at start. Raises SettingsError."""
    if "tls" not in settings:
        return None
    given = _section_settings("tls", settings)
    for dependent in ("key_file", "key_password"):
        if dependent in given and "certificate_file" not in given:
            raise given[dependent].error("needs certificate_file: give it too, or remove this")
    tls = read_settings(TlsSettings, given)
    try:
        tls.context()
    except ValueError as error:
        raise settings["tls"].error(str(error)) from error
    return tls


def read_sasl(settings: NamedSettings) -> SaslSettings | None:
    """User name and password; None without `sasl`. Raises SettingsError if one of them is missing."""
    if "sasl" not in settings:
        return None
    given = _section_settings("sasl", settings)
    for key in keys_of(SaslSettings):
        if key not in given:
            raise settings["sasl"].error(f"{key} is missing")
    return read_settings(SaslSettings, given)


def read_authorization(settings: NamedSettings) -> dict[str, Secret]:
    """The credentials of each scheme in `authorization.SCHEME`. Raises SettingsError."""
    authorization = {}
    for scheme, credentials in _section_settings("authorization", settings).items():
        if scheme == "sasl":
            raise credentials.error("sasl is not an authorization scheme: use zookeeper.sasl")
        user, colon, _ = credentials.text.partition(":")
        if scheme == "digest" and not (user and colon):
            raise credentials.error("must be user:password")
        authorization[scheme] = read_secret(credentials)
    return dict(sorted(authorization.items()))
