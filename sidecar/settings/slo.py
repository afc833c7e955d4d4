"""The service level objective for leadership, of all clusters or of one."""

import re
from typing import Annotated, Final

from msgspec import Struct

from sidecar.core.policy.policy import Objective
from sidecar.settings.file.durations import DAY
from sidecar.settings.file.key import Duration, Key
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting

_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?")


def _percent(setting: Setting) -> float:
    percent = float(setting.matching(_PERCENT, "a percentage like 99.9, with at most four decimals"))
    if not percent:
        raise setting.invalid("must be more than 0 and less than 100 percent")
    return percent


class SloKeys(Struct, frozen=True):
    """The keys of `slo`."""

    leadership: Annotated[float, Key(_percent)]
    """percent of the time: more than 0, less than 100, at most four decimals"""
    window: Annotated[int, Key(Duration(DAY, 90 * DAY), "30d")]
    """the time in which that is to hold"""


def read_objective(section: Section) -> Objective:
    """The objective. Raises SettingsError."""
    return Objective(**section.values(SloKeys))
