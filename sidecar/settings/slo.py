"""The service level objective for leadership, of all clusters or of one."""

import re
from typing import Final

from sidecar.core.policy.policy import Objective
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY
from sidecar.settings.file.section import Section

_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?")
SHORTEST: Final = DAY
LONGEST: Final = 90 * DAY


def read_slo(section: Section) -> Objective | None:
    """The objective under `slo`; None: there is none. Raises SettingsError."""
    if "slo" not in section:
        return None
    slo = section.section("slo", schema.SLO)
    leadership = slo.get("leadership")
    percent = float(leadership.matching(_PERCENT, "a percentage like 99.9, with at most four decimals"))
    if not percent:
        raise leadership.invalid("must be more than 0 and less than 100 percent")
    return Objective(percent, slo.get("window").duration(SHORTEST, LONGEST))
