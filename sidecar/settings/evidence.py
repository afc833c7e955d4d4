"""The section `evidence`: what is captured at a failover, and how long its files are kept."""

import os
from enum import StrEnum
from pathlib import Path

from sidecar.core.policy.policy import Source
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.model import EvidenceSettings, FlinkRestSettings
from sidecar.settings.security import read_tls, security_settings


class FlinkRest(StrEnum):
    """Whether the leading REST server is asked."""

    AUTO = "auto"
    """Flink's REST server is asked at the address that the leader publishes."""
    NEVER = "never"


def read_evidence(section: Section, state_dir: Path, spool: Path | str) -> EvidenceSettings:
    """The settings of `section`; an empty one asks Flink's REST server alone. Raises SettingsError."""
    sources = {setting.choice(Source) for setting in section.texts("capture")}
    if len(sources) < len(section.texts("capture")):
        raise section.error("capture", "names a source twice")
    is_asked = not section.is_word("flink_rest") or section.get("flink_rest").choice(FlinkRest) is FlinkRest.AUTO
    if is_asked:
        sources.add(Source.FLINK_REST)
    elif Source.FLINK_REST in sources:
        raise section.error("flink_rest", "says never, and capture names it: remove one of the two")
    if "log" in section and Source.PROCESSES not in sources:
        raise section.error("log", "is read when a JobManager ends, which takes capture: [processes]")
    return section.make(
        EvidenceSettings,
        sources=frozenset(sources),
        folder=section.read("dir", lambda setting: _folder(setting, state_dir, spool), state_dir / "evidence"),
        tls=read_tls(security_settings(section)),
        **({"flink_rest": FlinkRestSettings()} if section.is_word("flink_rest") else {}),
    )


def _folder(setting: Setting, state_dir: Path, spool: Path | str) -> Path:
    """A folder that holds evidence only, because old files in it are removed."""
    folder = setting.path()
    real = Path(os.path.realpath(folder))
    for key, other in (("state_dir", state_dir), ("spool.url", spool)):
        if isinstance(other, Path) and Path(os.path.realpath(other)).is_relative_to(real):
            raise setting.error(f"old evidence is removed from it, and {key} is the same folder or in it: give another")
    return folder
