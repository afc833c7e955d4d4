"""The section `otlp`: an OpenTelemetry collector that gets failovers."""

import re
from typing import Final

from sidecar.net.secret import Secret
from sidecar.settings.alerting.receivers import http_url
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.model import OtlpSettings
from sidecar.settings.security import read_tls, security_settings

_HEADER_VALUE: Final = re.compile(r"[!-~]([ -~]{0,4094}[!-~])?")
_SIGNAL_PATHS: Final = ("/v1/logs", "/v1/metrics", "/v1/traces")


def read_otlp(section: Section, *, secrets: bool) -> OtlpSettings:
    """The settings of `section`; without `secrets` those of the headers are not read. Raises SettingsError."""
    headers = section.headers("headers") if secrets else {}
    return OtlpSettings(
        endpoint=_endpoint(section.get("endpoint")),
        headers={name: _header(setting) for name, setting in headers.items()},
        tls=read_tls(security_settings(section)),
    )


def _endpoint(setting: Setting) -> str:
    """A base URL, as in OTEL_EXPORTER_OTLP_ENDPOINT."""
    text = http_url(setting).rstrip("/")
    if "?" in text or text.endswith(_SIGNAL_PATHS):
        raise setting.error("must be where the collector is, like http://collector:4318: leave the rest out")
    return text


def _header(setting: Setting) -> Secret:
    secret = setting.secret("value")
    if not _HEADER_VALUE.fullmatch(secret.text):
        raise secret.error("must be 1 to 4096 printable ASCII characters")
    return Secret(secret.text)
