"""The section `evidence`: what is captured at a failover, and what becomes of the files."""

import os
from pathlib import Path
from typing import Final

from sidecar.core.policy.policy import Source
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, HOUR, SECOND
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given
from sidecar.settings.model import EvidenceSettings, TlsSettings
from sidecar.settings.security import read_tls

_MEGABYTE: Final = 1_000_000
_SHORTEST, _LONGEST = HOUR, 365 * DAY
_MOST_MEGABYTES: Final = 100_000


def read_evidence(section: Section, state_dir: Path, spool: Path | str) -> EvidenceSettings:
    """What it says; without it, nothing is captured. Raises SettingsError."""
    sources = [given.choice(Source) for given in section.texts("capture")]
    if len({*sources}) < len(sources):
        raise section.error("capture", "names a source twice")
    return EvidenceSettings(
        sources=frozenset(sources),
        folder=_folder(section.find("dir"), state_dir, spool),
        keep=section.get("keep").duration(_SHORTEST, _LONGEST) / SECOND,
        most_bytes=section.get("keep_megabytes").integer(1, _MOST_MEGABYTES) * _MEGABYTE,
        tls=_tls(section),
    )


def _folder(given: Given | None, state_dir: Path, spool: Path | str) -> Path:
    """Where files are removed when they are old: nothing else of ours may stand there."""
    if given is None:
        return state_dir / "evidence"
    folder = given.path()
    real = Path(os.path.realpath(folder))
    for key, other in (("state_dir", state_dir), ("spool.url", spool)):
        if isinstance(other, Path) and Path(os.path.realpath(other)).is_relative_to(real):
            raise given.error(
                f"{key} is the same folder, or in it, and old evidence is removed: give it a folder of its own"
            )
    return folder


def _tls(section: Section) -> TlsSettings | None:
    if "tls" not in section:
        return None
    nested = section.section("tls", schema.TLS)
    given = {"tls": Given("", "", nested.where)}
    for key in schema.TLS.defaults:
        if value := nested.find(key):
            given[f"tls.{key}"] = value.secret("value") if key == "key_password" else value
    return read_tls(given)
