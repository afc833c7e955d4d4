"""The section `evidence`: what is captured at a failover, and how long its files are kept."""

import os
from pathlib import Path
from typing import Final

from sidecar.core.policy.policy import Source
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, HOUR, MINUTE, SECOND
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.model import EvidenceSettings, FlinkRestSettings
from sidecar.settings.security import read_tls, security_settings

_MEGABYTE: Final = 1_000_000


def read_evidence(section: Section, state_dir: Path, spool: Path | str) -> EvidenceSettings:
    """The settings of `section`; an empty one captures nothing. Raises SettingsError."""
    sources = [setting.choice(Source) for setting in section.texts("capture")]
    if len({*sources}) < len(sources):
        raise section.error("capture", "names a source twice")
    return EvidenceSettings(
        sources=frozenset(sources),
        folder=section.read("dir", lambda setting: _folder(setting, state_dir, spool), state_dir / "evidence"),
        keep=section.get("keep").duration(HOUR, 365 * DAY) / SECOND,
        most_bytes=section.get("keep_megabytes").integer(1, 100_000) * _MEGABYTE,
        tls=read_tls(security_settings(section)),
        flink_rest=read_flink_rest(section.section("flink_rest", schema.FLINK_REST)),
    )


def read_flink_rest(section: Section) -> FlinkRestSettings:
    """How Flink's REST server is compared before and after a failover. Raises SettingsError."""
    return FlinkRestSettings(
        interval=section.get("interval").duration(2 * SECOND, 10 * MINUTE),
        patience=section.get("patience").duration(MINUTE, HOUR),
    )


def _folder(setting: Setting, state_dir: Path, spool: Path | str) -> Path:
    """A folder that holds evidence only, because old files in it are removed."""
    folder = setting.path()
    real = Path(os.path.realpath(folder))
    for key, other in (("state_dir", state_dir), ("spool.url", spool)):
        if isinstance(other, Path) and Path(os.path.realpath(other)).is_relative_to(real):
            raise setting.error(f"old evidence is removed from it, and {key} is the same folder or in it: give another")
    return folder
