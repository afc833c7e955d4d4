"""The security of a connection: TLS, SASL, ZooKeeper authorization."""

from collections.abc import Mapping
from pathlib import Path

from sidecar.net.secret import Secret
from sidecar.settings.file import schema
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.model import SaslSettings, TlsSettings

NamedSettings = Mapping[str, Setting]
"""The settings of one cluster in one source (command line, environment, a file), by name."""


def security_settings(section: Section) -> dict[str, Setting]:
    """The settings of the sections `tls`, `sasl` and `authorization` as `tls.ca_file`, …; `tls` itself has only a location."""
    settings = {}
    for name, keys in schema.ZOOKEEPER_SECURITY.items():
        if name in section:
            nested = section.section(name, keys)
            settings[name] = Setting("", nested.location, place=nested.place)
            for key in (f"{name}.{key}" for key in keys if key in nested):
                setting = nested.get(key.removeprefix(f"{name}."))
                settings[key] = setting.secret("value") if key in schema.SECRETS else setting
    return settings


def read_tls(settings: NamedSettings) -> TlsSettings | None:
    """The TLS settings; None without `tls`. Reads the files once, so that a mistake is an error at start. Raises SettingsError."""
    if "tls" not in settings:
        return None
    ca, certificate, key, password = (settings.get(f"tls.{name}") for name in schema.TLS)
    for dependent in (key, password):
        if dependent is not None and certificate is None:
            raise dependent.error("needs certificate_file: give it too, or remove this")
    tls = TlsSettings(
        ca_file=readable(ca) if ca else None,
        certificate_file=readable(certificate) if certificate else None,
        key_file=readable(key) if key else None,
        key_password=Secret(password.not_empty()) if password else None,
    )
    try:
        tls.context()
    except ValueError as error:
        raise settings["tls"].error(str(error)) from error
    return tls


def read_sasl(settings: NamedSettings) -> SaslSettings | None:
    """User name and password; None without `sasl`. Raises SettingsError if one of them is missing."""
    if "sasl" not in settings:
        return None
    for key in schema.SASL:
        if f"sasl.{key}" not in settings:
            raise settings["sasl"].error(f"{key} is missing")
    return SaslSettings(settings["sasl.username"].not_empty(), Secret(settings["sasl.password"].not_empty()))


def read_authorization(settings: NamedSettings) -> dict[str, Secret]:
    """The credentials of each scheme in `authorization.SCHEME`. Raises SettingsError."""
    authorization = {}
    for name, credentials in settings.items():
        section, _, scheme = name.partition(".")
        if section == "authorization" and scheme:
            if scheme == "sasl":
                raise credentials.error("sasl is not an authorization scheme: use zookeeper.sasl")
            user, colon, _ = credentials.text.partition(":")
            if scheme == "digest" and not (user and colon):
                raise credentials.error("must be user:password")
            authorization[scheme] = Secret(credentials.not_empty())
    return dict(sorted(authorization.items()))


def readable(setting: Setting) -> Path:
    """The path of a readable file. The error does not have the absolute path: the value may be a misplaced secret."""
    path = setting.path()
    try:
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a path"
        raise setting.invalid(f"cannot be read: {reason}") from None
