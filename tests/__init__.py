"""Tests, room by room as the code."""

from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings

ROOT: Final = Path(__file__).parents[1]
"""The repository's top folder."""

# A busy machine is slow, not wrong: what a property promises is not how fast it is shown.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
